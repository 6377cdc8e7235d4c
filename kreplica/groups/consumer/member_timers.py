"""Session and revocation timeouts of the members of a KIP-848 group."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall

from kreplica.groups.consumer.members import Member, MemberState
from kreplica.groups.consumer.state import GroupState, changed_members
from kreplica.runtime import Reactor


class MemberTimers:
    """Timers of one group; owned by the group.

    :param on_session_expired: called with the id of a member whose session has expired.
    :param on_revocation_timeout: called with the id of a member that did not revoke its partitions in time.
    """

    def __init__(
        self,
        reactor: Reactor,
        session_timeout_ms: int,
        on_session_expired: Callable[[str], None],
        on_revocation_timeout: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._session_s = session_timeout_ms / 1000
        self._on_session_expired = on_session_expired
        self._on_revocation_timeout = on_revocation_timeout
        self._sessions: dict[str, IDelayedCall] = {}
        self._revocations: dict[str, IDelayedCall] = {}

    def restart_session(self, member_id: str) -> None:
        """Restart a member's session timeout."""
        call = self._sessions.get(member_id)
        if call is not None:
            call.reset(self._session_s)

    def update(self, old: GroupState, new: GroupState) -> None:
        """Update the timers after a state change."""
        for before, member in changed_members(old, new):
            if member is None:
                if before is not None:
                    _cancel(self._sessions, before.member_id)
                    _cancel(self._revocations, before.member_id)
                continue
            if before is None:
                self._start_session(member.member_id)
            if before is None or before.progress != member.progress:
                self._update_revocation(member)

    def recheck_later(self, member_id: str, seconds: float) -> None:
        """Check a member again after a delay, because it cannot be removed at this time."""
        self._start_session(member_id, seconds)

    def session_remaining_s(self, member_id: str) -> float | None:
        """Return the number of seconds until a member's session expires; None if it has no timer."""
        return self._remaining_s(self._sessions, member_id)

    def revocation_remaining_s(self, member_id: str) -> float | None:
        """Return the number of seconds until a member must have confirmed its revocations; None if it has none."""
        return self._remaining_s(self._revocations, member_id)

    def _remaining_s(self, calls: dict[str, IDelayedCall], member_id: str) -> float | None:
        call = calls.get(member_id)
        return None if call is None else max(call.getTime() - self._reactor.seconds(), 0.0)

    def stop(self) -> None:
        """Cancel all timers."""
        for calls in (self._sessions, self._revocations):
            for member_id in list(calls):
                _cancel(calls, member_id)

    def _start_session(self, member_id: str, seconds: float | None = None) -> None:
        _cancel(self._sessions, member_id)
        delay_s = self._session_s if seconds is None else seconds
        self._sessions[member_id] = self._reactor.callLater(delay_s, self._on_expired, self._sessions, member_id)

    def _update_revocation(self, member: Member) -> None:
        _cancel(self._revocations, member.member_id)
        if member.progress.state is MemberState.UNREVOKED_PARTITIONS:
            delay_s = max(member.subscription.rebalance_timeout_ms, 0) / 1000
            call = self._reactor.callLater(delay_s, self._on_expired, self._revocations, member.member_id)
            self._revocations[member.member_id] = call

    def _on_expired(self, calls: dict[str, IDelayedCall], member_id: str) -> None:
        del calls[member_id]
        (self._on_session_expired if calls is self._sessions else self._on_revocation_timeout)(member_id)


def _cancel(calls: dict[str, IDelayedCall], member_id: str) -> None:
    call = calls.pop(member_id, None)
    if call is not None:
        call.cancel()
