"""State of a classic group, and the operations on it that its requests and timers share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.cluster.uuids import random_uuid
from kreplica.errors import ErrorCode, ProtocolError
from kreplica.groups.classic.config import ClassicConfig
from kreplica.groups.classic.group_records import record_of
from kreplica.groups.classic.member import Member
from kreplica.groups.classic.requests import Join, JoinResponse, SyncResponse
from kreplica.groups.classic.roster import Roster
from kreplica.groups.classic.states import PREVIOUS, State
from kreplica.groups.group import UNKNOWN_MEMBER
from kreplica.groups.memory_limits import GroupAccount
from kreplica.groups.records import build_group_key, build_group_value
from kreplica.runtime import Runtime

if TYPE_CHECKING:
    from kreplica.coordination.state_log import StateLog

log = Logger()

T = TypeVar("T")


class ClassicGroupState(ABC):
    """State of a classic group; ``ClassicGroup`` adds the requests.

    Every entry point (a request, a timer or a log callback) is one step: it first makes all changes to the group, then
    calls the callbacks of requests.

    :param on_unused: called with the group id when the group has neither members nor a record and may be removed.
    :ivar account: charged for the memory of members.
    :ivar protocol: the selected protocol; None without members.
    :ivar is_awaiting_members: the first rebalance of an empty group is waiting for more members (KIP-134).
    :ivar has_new_member: a member has joined during that wait.
    """

    def __init__(
        self,
        group_id: str,
        runtime: Runtime,
        state_log: StateLog,
        config: ClassicConfig,
        on_unused: Callable[[str], None],
        account: GroupAccount,
    ) -> None:
        self.group_id = group_id
        self.config = config
        self.state = State.EMPTY
        self.generation = 0
        self.protocol: str | None = None
        self.account = account
        self.roster = Roster(account)
        self.is_awaiting_members = False
        self.has_new_member = False
        self.reactor = runtime.reactor
        self._runtime = runtime
        self._log = state_log
        self._on_unused = on_unused
        self._may_be_written = False
        self._state_timestamp_ms = runtime.wall_clock_ms()
        self._timer: IDelayedCall | None = None
        self._callbacks: deque[Callable[[], None]] = deque()

    @abstractmethod
    def on_session_expired(self, member: Member) -> None:
        """Callback of a member's session timer."""

    @abstractmethod
    def on_pending_expired(self, member_id: str) -> None:
        """Callback of the timer of an unused member id."""

    @property
    def is_empty(self) -> bool:
        """True if there are neither members nor unused member ids."""
        return self.state is State.EMPTY and not self.roster.pending

    def _run_step(self, action: Callable[[], None]) -> None:
        action()
        while self._callbacks:
            self._callbacks.popleft()()
        if self.is_empty and not self._may_be_written:
            self._on_unused(self.group_id)

    # --- changes, within a step --------------------------------------------------------------------------------------

    def transition(self, state: State) -> None:
        """Change the state.

        :raise RuntimeError: the transition is invalid, which means a bug in this code.
        """
        if self.state not in PREVIOUS[state]:
            raise RuntimeError(f"group {self.group_id!r}: invalid transition from {self.state.value} to {state.value}")
        self.state = state
        self._state_timestamp_ms = self._runtime.wall_clock_ms()

    def begin_generation(self) -> None:
        """Start the next generation with the members that have joined and select its protocol."""
        self.generation += 1
        self.roster.unsynced = {}
        if self.roster.members:
            self.protocol = self.roster.select_protocol()
            self.transition(State.COMPLETING_REBALANCE)
        else:
            self.protocol = None
            self.transition(State.EMPTY)

    def new_member(self, member_id: str, request: Join) -> Member:
        """Return a new member that is not in the roster yet; its session timer has not been started."""
        return Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            self.reactor,
            self.on_session_expired,
        )

    def new_member_id(self, request: Join) -> str:
        """Return a unique member id with the instance or client id as prefix."""
        return f"{request.instance_id or request.client_id}-{random_uuid(self._runtime.random)}"

    def start_timer(self, delay_ms: int, expired: Callable[[], None]) -> None:
        """Start the timer of a rebalance phase, replacing the timer of the previous phase.

        :param delay_ms: the timer fires immediately if this is negative; clients may send such values.
        """
        self.stop_timer()

        def on_timeout() -> None:
            self._timer = None
            self._run_step(expired)

        self._timer = self.reactor.callLater(max(delay_ms / 1000, 0.0), on_timeout)

    @property
    def phase_remaining_s(self) -> float | None:
        """Seconds until the timeout of the current rebalance phase; None if no phase is running."""
        return None if self._timer is None else max(self._timer.getTime() - self.reactor.seconds(), 0.0)

    def stop_timer(self) -> None:
        """Cancel the timer of the rebalance phase."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send_response(self, callback: Callable[[T], None], response: T) -> None:
        """Send the response of a request at the end of this step."""
        self._callbacks.append(lambda: callback(response))

    def join_response(self, member: Member, *, skip_assignment: bool = False) -> JoinResponse:
        """Return the JoinGroup response of a member of the current generation; the leader receives all members."""
        is_leader = self.roster.leader == member.member_id
        return JoinResponse(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.roster.protocol_type,
            self.protocol,
            self.roster.leader or UNKNOWN_MEMBER,
            skip_assignment and is_leader,
            self.roster.joined_members(self.protocol) if is_leader else (),
        )

    def respond_to_join(self, member: Member, joined: JoinResponse) -> None:
        """Respond to the pending JoinGroup request of a member, if there is one."""
        respond = self.roster.end_join(member)
        if respond is not None:
            self.send_response(respond, joined)

    def respond_to_sync(self, member: Member, synced: SyncResponse) -> None:
        """Respond to the pending SyncGroup request of a member, if there is one."""
        respond, member.awaiting_sync = member.awaiting_sync, None
        if respond is not None:
            member.restart_session()
            self.send_response(respond, synced)

    def drop(self, member: Member) -> None:
        """Remove a member from the roster and respond to its pending requests with UNKNOWN_MEMBER_ID."""
        member.session.end()
        self.respond_to_join(member, JoinResponse(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER))
        respond, member.awaiting_sync = member.awaiting_sync, None
        if respond is not None:
            self.send_response(respond, SyncResponse(ErrorCode.UNKNOWN_MEMBER_ID))
        self.roster.remove(member)

    def store(self, assignments: Mapping[str, bytes], stored: Callable[[ErrorCode], None]) -> None:
        """Write the group with these assignments.

        :param stored: called, as a separate step, with NONE once the record is committed, otherwise with the error for
            the members.
        """
        record = record_of(self.roster, self.generation, self.protocol, self._state_timestamp_ms, assignments)
        try:
            pair = (build_group_key(self.group_id), build_group_value(record))
        except ProtocolError as error:
            log.error("cannot write group {group!r}: {error}", group=self.group_id, error=str(error))
            self.send_response(lambda code: self._run_step(lambda: stored(code)), ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._may_be_written = True
        self._log.append([pair], _do_nothing, lambda code: self._run_step(lambda: stored(_client_error(code))))


def _client_error(code: ErrorCode) -> ErrorCode:
    """Return the error to send to members; hides MESSAGE_TOO_LARGE, which they could not act on."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if code is ErrorCode.MESSAGE_TOO_LARGE else code


def _do_nothing() -> None: ...
