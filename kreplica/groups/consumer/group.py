"""A running KIP-848 group: its current and committed state, timers and pending heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer import fencing, persistence
from kreplica.groups.consumer.config import ConsumerConfig
from kreplica.groups.consumer.member_timers import MemberTimers
from kreplica.groups.consumer.members import Progress
from kreplica.groups.consumer.memory_size import charge, check_memory
from kreplica.groups.consumer.pending_writes import RETRY_SECONDS, GroupWrites
from kreplica.groups.consumer.requests import Heartbeat
from kreplica.groups.consumer.state import GroupState, StateName
from kreplica.groups.consumer.subscriptions import Topics, TopicSnapshot, is_subscribed
from kreplica.groups.consumer.target_assignment import with_target
from kreplica.groups.consumer.transitions import HeartbeatResponse, advance, enter, leave, needs_target, remove
from kreplica.groups.group import CONSUMER, UNKNOWN_MEMBER
from kreplica.groups.memory_limits import GroupAccount

if TYPE_CHECKING:
    from kreplica.coordination.state_log import Pair, StateLog
    from kreplica.runtime import Runtime

log = Logger()

COMMIT_VERSION_MIN = 9
"""First version of OffsetCommit that contains member epochs."""

WAITING_MAX = 20_000
"""Maximum number of heartbeats per group that may wait for a write; each member has at most one."""

NOT_COMMITTED = "the group's state change could not be committed"


class _Heartbeat(NamedTuple):
    """A pending heartbeat."""

    request: Heartbeat
    topics: TopicSnapshot
    result: Deferred[HeartbeatResponse]


class ConsumerGroup:
    """A KIP-848 group; implements ``Group``.

    Its shard owns it from the time the first member joins or the group is loaded.


    :param state: the loaded state, or the empty state of a new group.
    :param account: charged for the memory of members and of regular expression matches.
    :param preceding: tombstones of a replaced classic group; written before the group's own records until a write has
        been committed.
    :ivar state: current state, including changes that have not been committed yet.
    :ivar committed: committed state.
    :ivar topics_version: version of the topic metadata that was last used; None if none has been used yet.
    """

    type_name = CONSUMER
    protocol_type = "consumer"

    def __init__(
        self,
        state: GroupState,
        runtime: Runtime,
        state_log: StateLog,
        topics: Topics,
        config: ConsumerConfig,
        account: GroupAccount,
        preceding: Sequence[Pair] = (),
    ) -> None:
        self.group_id = state.group_id
        self.state = state
        self.committed = state
        self.topics_version: int | None = None
        self._topics = topics
        self._config = config
        self.account = account
        self._preceding = preceding
        self._queued_heartbeats: list[_Heartbeat] = []
        self._writes = GroupWrites(
            runtime.reactor, state_log, state, self._on_committed, self._discard, self._on_write_settled
        )
        self._timers = MemberTimers(
            runtime.reactor, config.session_timeout_ms, self._on_session_expired, self._on_revocation_timeout
        )
        self._apply_change(GroupState(state.group_id), state)

    # --- members -----------------------------------------------------------------------------------------------------

    def heartbeat(self, request: Heartbeat, topics: TopicSnapshot) -> Deferred[HeartbeatResponse]:
        """Handle a heartbeat, including the last heartbeat of a member that leaves.

        :return: fires once the changes are committed; may be cancelled.
        :raise KafkaError: COORDINATOR_NOT_AVAILABLE, or see ``transitions.enter``, ``transitions.leave`` and
            ``check_memory``; nothing has changed.
        """
        if self._writes.is_failing or self._writes.waiting_count + len(self._queued_heartbeats) >= WAITING_MAX:
            self.restart_session(request.member_id)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group's state currently cannot be written")
        check_memory(self.account, self.state, request)
        heartbeat = _Heartbeat(request, topics, Deferred())
        if request.is_leaving:
            outcome = leave(self.state, request, topics)
            self._change_state(outcome.state, partial(_respond, heartbeat.result, outcome.response))
        elif self._writes.is_in_flight and needs_target(enter(self.state, request, topics, self._config)[0]):
            self._queued_heartbeats.append(heartbeat)  # one target computation for all heartbeats during the write
        else:
            self._apply_heartbeats([heartbeat], fails_deferreds=False)
        return heartbeat.result

    @property
    def session_s(self) -> float:
        """Session timeout in seconds."""
        return self._config.session_timeout_ms / 1000

    def session_remaining_s(self, member_id: str) -> float | None:
        """See ``MemberTimers``."""
        return self._timers.session_remaining_s(member_id)

    def revocation_remaining_s(self, member_id: str) -> float | None:
        """See ``MemberTimers``."""
        return self._timers.revocation_remaining_s(member_id)

    def restart_session(self, member_id: str) -> None:
        """Restart a member's session, so that it does not expire while the member's requests fail."""
        self._timers.restart_session(member_id)

    def _apply_heartbeats(self, heartbeats: Sequence[_Heartbeat], *, fails_deferreds: bool = True) -> None:
        """Apply heartbeats in order, with a single target computation.

        :param fails_deferreds: if True, fail the Deferreds of rejected heartbeats instead of raising the error.
        """
        state = self.state
        applied: list[tuple[_Heartbeat, Progress]] = []
        for heartbeat in heartbeats:
            try:
                state, previous_progress = enter(state, heartbeat.request, heartbeat.topics, self._config)
            except KafkaError as error:
                if not fails_deferreds:
                    raise
                heartbeat.result.errback(error)
                continue
            self.restart_session(heartbeat.request.member_id)
            self.topics_version = heartbeat.topics.version
            applied.append((heartbeat, previous_progress))
        if needs_target(state):
            state = with_target(state, self._config.assignors)
        callbacks = []
        for heartbeat, previous_progress in applied:
            state, response = advance(state, heartbeat.request, previous_progress)
            callbacks.append(partial(_respond, heartbeat.result, response))
        self._change_state(state, *callbacks)

    def _change_state(self, state: GroupState, *callbacks: Callable[[ErrorCode], None]) -> None:
        records: list[Pair] = []
        if state is not self.state:
            records += [*self._preceding, *persistence.records_between(self.state, state)]
            old, self.state = self.state, state
            self._apply_change(old, state)
        self._writes.add(records, state, *callbacks)

    def _on_write_settled(self, code: ErrorCode) -> None:
        """Apply the heartbeats that arrived during the write, or fail them if the write failed."""
        queued_heartbeats, self._queued_heartbeats = self._queued_heartbeats, []
        if code is ErrorCode.NONE:
            if queued_heartbeats:
                self._apply_heartbeats(queued_heartbeats)
            return
        for heartbeat in queued_heartbeats:
            heartbeat.result.errback(KafkaError(code, NOT_COMMITTED))

    def _on_committed(self, state: GroupState) -> None:
        self.committed = state
        self._preceding = ()

    def _discard(self, state: GroupState) -> None:
        log.error("group {group!r}: state change exceeds the maximum batch size and was discarded", group=self.group_id)
        old, self.state = self.state, state
        self.topics_version = None
        self._apply_change(old, state)

    def _apply_change(self, old: GroupState, new: GroupState) -> None:
        self._timers.update(old, new)
        charge(self.account, old, new)

    def _on_session_expired(self, member_id: str) -> None:
        self._expire(member_id, "sent no heartbeat within the session timeout")

    def _on_revocation_timeout(self, member_id: str) -> None:
        self._expire(member_id, "did not revoke its partitions in time")

    def _expire(self, member_id: str, reason: str) -> None:
        if self._writes.is_failing:  # the member's heartbeats fail too, so the member must not expire
            self._timers.recheck_later(member_id, RETRY_SECONDS)
            return
        log.info("member {member!r} of group {group!r} {why}", member=member_id, group=self.group_id, why=reason)
        self._change_state(remove(self.state, [member_id], TopicSnapshot(self._topics)))

    # --- Group interface ---------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return (self.committed.name if self.committed.epoch else StateName.DEAD).value

    @property
    def is_empty(self) -> bool:
        """True if there are no members and no write is in flight.

        Such a write could end up after the group's tombstones in the log.
        """
        return not self.state.members and not self._writes.is_in_flight

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> None:
        if generation < 0 and not self.state.members:
            return
        if transactional and generation < 0 and member_id == UNKNOWN_MEMBER and instance_id is None:
            return
        member = self.state.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        if not transactional and version < COMMIT_VERSION_MIN:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"members must commit with version {COMMIT_VERSION_MIN} or later"
            )
        if not fencing.is_epoch_of_commit(member, generation):
            code = ErrorCode.ILLEGAL_GENERATION if transactional else ErrorCode.STALE_MEMBER_EPOCH
            raise KafkaError(
                code,
                f"member {member_id!r} is at epoch {member.progress.epoch}, but the request has epoch {generation}",
            )

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if not member_id and member_epoch < 0:
            return
        member = self.state.members.get(member_id or UNKNOWN_MEMBER)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, member_id or "")
        if not fencing.is_epoch_of_commit(member, member_epoch):
            raise KafkaError(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"member {member_id!r} is at epoch {member.progress.epoch}, but the request has epoch {member_epoch}",
            )

    @property
    def member_count(self) -> int:
        return len(self.state.members)

    @property
    def subscribed_topics(self) -> frozenset[str]:
        return frozenset(self.state.topics)

    def is_subscribed_to(self, topic: str) -> bool:
        return is_subscribed(self.state, topic)

    def expires_from_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        return None if self.is_subscribed_to(topic) else commit_timestamp_ms

    def check_offset_delete(self) -> None:
        if not self.committed.epoch:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, self.group_id)

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, self.group_id)

    def tombstones(self) -> list[Pair]:
        return persistence.tombstones(self.state)

    def unload(self) -> None:
        self._timers.stop()
        self._on_write_settled(ErrorCode.NOT_COORDINATOR)
        self._writes.close(ErrorCode.NOT_COORDINATOR)
        self.account.close()


def _respond(result: Deferred[HeartbeatResponse], response: HeartbeatResponse, code: ErrorCode) -> None:
    if code is ErrorCode.NONE:
        result.callback(response)
    else:
        result.errback(KafkaError(code, NOT_COMMITTED))
