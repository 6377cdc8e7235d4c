"""State and operations of one classic group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.cluster.uuids import random_uuid
from kreplica.errors import ErrorCode, KafkaError, ProtocolError
from kreplica.groups.classic import fencing, joining, member_removal, rebalancing, syncing
from kreplica.groups.classic.config import ClassicConfig
from kreplica.groups.classic.group_records import record_of, restored_roster
from kreplica.groups.classic.member import Member
from kreplica.groups.classic.requests import (
    DescribedMember,
    Description,
    Join,
    JoinAnswer,
    Joined,
    Leave,
    Sync,
    SyncAnswer,
    Synced,
)
from kreplica.groups.classic.roster import CONSUMERS, Roster
from kreplica.groups.classic.states import PREVIOUS, State
from kreplica.groups.group import CLASSIC, UNKNOWN_MEMBER
from kreplica.groups.memory_limits import GroupAccount
from kreplica.groups.records import GroupRecord, build_group_key, build_group_value
from kreplica.runtime import Runtime

if TYPE_CHECKING:
    from kreplica.coordination.state_log import Pair, StateLog

log = Logger()

T = TypeVar("T")


class ClassicGroup:
    """A classic group; implements ``Group`` and is owned by its shard, from creation or loading until ``unload``.

    Every entry point (a request, a timer, a log callback) is one step: it changes the group first and calls the
    callbacks of requests when all changes are made.

    :param unused: called with the group id when the group has neither members nor a record and may be forgotten.
    :param record: the loaded record; None for a new group.
    :ivar account: charged for members.
    :ivar protocol: the selected protocol; None without members.
    :ivar is_gathering: the first rebalance of an empty group is waiting for more members (KIP-134).
    :ivar has_newcomer: a member joined during that wait.
    """

    type_name = CLASSIC

    def __init__(
        self,
        group_id: str,
        runtime: Runtime,
        state_log: StateLog,
        config: ClassicConfig,
        unused: Callable[[str], None],
        account: GroupAccount,
        record: GroupRecord | None = None,
    ) -> None:
        self.group_id = group_id
        self.config = config
        self.state = State.EMPTY
        self.generation = 0
        self.protocol: str | None = None
        self.account = account
        self.roster = Roster(account)
        self.is_gathering = False
        self.has_newcomer = False
        self.reactor = runtime.reactor
        self._runtime = runtime
        self._log = state_log
        self._unused = unused
        self._may_be_written = False
        self._state_timestamp_ms = runtime.wall_clock_ms()
        self._timer: IDelayedCall | None = None
        self._callbacks: deque[Callable[[], None]] = deque()
        if record is not None:
            self._restore(record)

    def _restore(self, record: GroupRecord) -> None:
        self._may_be_written = True
        self._state_timestamp_ms = record.state_timestamp_ms
        self.generation = record.generation
        self.protocol = record.protocol
        self.roster = restored_roster(record, self.account, self.reactor, self.session_ended)
        if self.roster.members:
            self.state = State.STABLE
            for member in self.roster.members.values():
                member.heard()
        if len(self.roster.members) > self.config.size_max:
            self._step(lambda: rebalancing.prepare(self, "it has more members than group.max.size"))

    # --- requests ----------------------------------------------------------------------------------------------------

    def join(self, request: Join, answer: JoinAnswer) -> None:
        """Handle JoinGroup; answered when the join phase completes, or immediately if there is nothing to wait for."""
        self._step(lambda: joining.join(self, request, answer))

    def abandon_join(self, answer: JoinAnswer) -> None:
        """Handle the loss of the connection that waits for this response to ``join``."""
        self._step(lambda: joining.abandon(self, answer))

    def sync(self, request: Sync, answer: SyncAnswer) -> None:
        """Handle SyncGroup; answered once the leader's assignment is committed."""
        self._step(lambda: syncing.sync(self, request, answer))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Handle Heartbeat; returns REBALANCE_IN_PROGRESS if the member has to join again."""
        try:
            member = self.check_generation(member_id, instance_id, generation)
        except KafkaError as error:
            return error.code
        member.heard()
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def leave(self, leaves: Sequence[Leave]) -> list[ErrorCode]:
        """Remove members; returns one error code for each."""
        codes: list[ErrorCode] = []
        self._step(lambda: codes.extend(member_removal.leave(self, leave) for leave in leaves))
        return codes

    # --- description -------------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return self.roster.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        """True without members and unused member ids."""
        return self.state is State.EMPTY and not self.roster.pending

    def describe(self) -> Description:
        """Return the group for DescribeGroups."""
        is_stable = self.state is State.STABLE
        return Description(
            self.state_name,
            self.protocol_type,
            (self.protocol or "") if is_stable else "",
            [
                DescribedMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata(self.protocol) if is_stable else b"",
                    member.assignment if is_stable else b"",
                )
                for member in self.roster.members.values()
            ],
        )

    def is_subscribed_to(self, topic: str) -> bool:
        if self.protocol_type != CONSUMERS:
            return False
        topics = self.roster.topics(self.protocol)
        return topics is None or topic in topics

    def expires_from_ms(self, topic: str, commit_timestamp_ms: int) -> int | None:
        if self.roster.protocol_type is None:
            return commit_timestamp_ms
        if self.state is State.EMPTY:
            return self._state_timestamp_ms if self._state_timestamp_ms >= 0 else commit_timestamp_ms
        if self.state is State.STABLE and self.protocol_type == CONSUMERS and not self.is_subscribed_to(topic):
            return commit_timestamp_ms
        return None

    def tombstones(self) -> list[Pair]:
        return [(build_group_key(self.group_id), None)] if self._may_be_written else []

    # --- validation --------------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member with this id, and with this instance id if given.

        :raise KafkaError: UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if another member has joined with the instance id.
        """
        if instance_id is not None:
            holder = self.roster.id_of(instance_id)
            if holder is not None and not fencing.holds_instance(member_id, holder):
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"instance {instance_id!r} is member {holder!r} now")
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has instance id {instance_id!r}")
        member = self.roster.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        return member

    def check_generation(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        """Return the member if the generation is current.

        :raise KafkaError: as ``check_member``; ILLEGAL_GENERATION.
        """
        member = self.check_member(member_id, instance_id)
        if not fencing.is_current_generation(generation, self.generation):
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION, f"generation {generation} is not the current generation {self.generation}"
            )
        return member

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> None:
        if generation < 0 and self.state is State.EMPTY:
            return
        if generation >= 0 or member_id != UNKNOWN_MEMBER or instance_id is not None:
            member = self.check_generation(member_id, instance_id, generation)
            if not transactional:
                member.heard()
        elif not transactional and self.state is not State.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members, and only they may commit")
        if self.state is State.COMPLETING_REBALANCE and not transactional:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self._check_alive()

    def check_offset_delete(self) -> None:
        self._check_alive()
        if self.state is not State.EMPTY and self.protocol_type != CONSUMERS:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP, f"subscriptions of members of type {self.protocol_type!r} cannot be decoded"
            )

    def check_delete(self) -> None:
        self._check_alive()
        if self.state is not State.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, self.group_id)

    def _check_alive(self) -> None:
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, self.group_id)

    # --- for the modules of this package, within a step --------------------------------------------------------------

    def transition(self, state: State) -> None:
        """Change the state.

        :raise RuntimeError: invalid transition, a bug in this code.
        """
        if self.state not in PREVIOUS[state]:
            raise RuntimeError(f"group {self.group_id!r}: invalid transition from {self.state.value} to {state.value}")
        self.state = state
        self._state_timestamp_ms = self._runtime.wall_clock_ms()

    def begin_generation(self) -> None:
        """Start the next generation with the members that have joined, and select its protocol."""
        self.generation += 1
        self.roster.unsynced = {}
        if self.roster.members:
            self.protocol = self.roster.select_protocol()
            self.transition(State.COMPLETING_REBALANCE)
        else:
            self.protocol = None
            self.transition(State.EMPTY)

    def new_member(self, member_id: str, request: Join) -> Member:
        """Return a new member that is not in the roster yet; its session timer is not started."""
        return Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            self.reactor,
            self.session_ended,
        )

    def new_member_id(self, request: Join) -> str:
        """Return a unique member id with the instance or client id as prefix."""
        return f"{request.instance_id or request.client_id}-{random_uuid(self._runtime.random)}"

    def session_ended(self, member: Member) -> None:
        """Callback of a member's session timer."""
        self._step(lambda: member_removal.expire(self, member))

    def pending_ended(self, member_id: str) -> None:
        """Callback of the timer of an unused member id."""
        self._step(lambda: member_removal.expire_pending(self, member_id))

    def start_timer(self, delay_ms: int, expired: Callable[[], None]) -> None:
        """Start the timer of a rebalance phase in place of the previous phase's.

        :param delay_ms: fires immediately if negative; clients may send such values.
        """
        self.stop_timer()

        def fired() -> None:
            self._timer = None
            self._step(expired)

        self._timer = self.reactor.callLater(max(delay_ms / 1000, 0.0), fired)

    @property
    def phase_left_s(self) -> float | None:
        """Seconds until the timeout of the current rebalance phase; None if no phase is running."""
        return None if self._timer is None else max(self._timer.getTime() - self.reactor.seconds(), 0.0)

    def stop_timer(self) -> None:
        """Cancel the timer of the rebalance phase."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def answer(self, callback: Callable[[T], None], response: T) -> None:
        """Call the callback of a request at the end of this step."""
        self._callbacks.append(lambda: callback(response))

    def store(self, assignments: Mapping[str, bytes], stored: Callable[[ErrorCode], None]) -> None:
        """Write the group with these assignments.

        :param stored: called as a separate step with NONE once it is committed, otherwise with the error for the
            members.
        """
        record = record_of(self.roster, self.generation, self.protocol, self._state_timestamp_ms, assignments)
        try:
            pair = (build_group_key(self.group_id), build_group_value(record))
        except ProtocolError as error:
            log.error("cannot write group {group!r}: {error}", group=self.group_id, error=str(error))
            self.answer(lambda code: self._step(lambda: stored(code)), ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._may_be_written = True
        self._log.append([pair], _nothing, lambda code: self._step(lambda: stored(_client_error(code))))

    # --- steps -------------------------------------------------------------------------------------------------------

    def _step(self, act: Callable[[], None]) -> None:
        act()
        while self._callbacks:
            self._callbacks.popleft()()
        if self.is_empty and not self._may_be_written:
            self._unused(self.group_id)

    def unload(self) -> None:
        if self.state is State.DEAD:
            return
        self.transition(State.DEAD)
        self.stop_timer()
        for session in self.roster.pending.values():
            session.end()
        for member in self.roster.members.values():
            joining.end(self, member, Joined(ErrorCode.NOT_COORDINATOR, member.member_id))
            syncing.end(self, member, Synced(ErrorCode.NOT_COORDINATOR))
            member.session.end()
            member.release()
        self.account.close()
        while self._callbacks:
            self._callbacks.popleft()()


def _client_error(code: ErrorCode) -> ErrorCode:
    """Return the error that members receive: they cannot act on MESSAGE_TOO_LARGE of the group's record."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if code is ErrorCode.MESSAGE_TOO_LARGE else code


def _nothing() -> None: ...
