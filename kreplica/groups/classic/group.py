"""Requests, timers and description of one classic group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic import joining, member_removal, rebalancing, session_expiry, syncing
from kreplica.groups.classic.config import ClassicConfig
from kreplica.groups.classic.generation_check import check_generation
from kreplica.groups.classic.group_records import restored_roster
from kreplica.groups.classic.group_state import ClassicGroupState
from kreplica.groups.classic.member import Member
from kreplica.groups.classic.requests import (
    DescribedMember,
    Description,
    Join,
    JoinCallback,
    JoinResponse,
    Leave,
    Sync,
    SyncCallback,
    SyncResponse,
)
from kreplica.groups.classic.roster import CONSUMERS
from kreplica.groups.classic.states import State
from kreplica.groups.group import CLASSIC, UNKNOWN_MEMBER
from kreplica.groups.memory_limits import GroupAccount
from kreplica.groups.records import GroupRecord, build_group_key
from kreplica.runtime import Runtime

if TYPE_CHECKING:
    from kreplica.coordination.state_log import Pair, StateLog


class ClassicGroup(ClassicGroupState):
    """A classic group; implements ``Group`` and is owned by its shard from creation or loading until ``unload``.

    :param record: the loaded record; None for a new group.
    """

    type_name = CLASSIC

    def __init__(
        self,
        group_id: str,
        runtime: Runtime,
        state_log: StateLog,
        config: ClassicConfig,
        on_unused: Callable[[str], None],
        account: GroupAccount,
        record: GroupRecord | None = None,
    ) -> None:
        super().__init__(group_id, runtime, state_log, config, on_unused, account)
        if record is not None:
            self._restore(record)

    def _restore(self, record: GroupRecord) -> None:
        self._may_be_written = True
        self._state_timestamp_ms = record.state_timestamp_ms
        self.generation = record.generation
        self.protocol = record.protocol
        self.roster = restored_roster(record, self.account, self.reactor, self.on_session_expired)
        if self.roster.members:
            self.state = State.STABLE
            for member in self.roster.members.values():
                member.restart_session()
        if len(self.roster.members) > self.config.size_max:
            self._run_step(lambda: rebalancing.prepare(self, "it has more members than group.max.size"))

    # --- requests ----------------------------------------------------------------------------------------------------

    def join(self, request: Join, respond: JoinCallback) -> None:
        """Handle JoinGroup; responds when the join phase completes, or immediately if no rebalance is needed."""
        self._run_step(lambda: joining.join(self, request, respond))

    def abandon_join(self, respond: JoinCallback) -> None:
        """Handle the loss of the connection that is waiting for this response to ``join``."""
        self._run_step(lambda: joining.abandon(self, respond))

    def sync(self, request: Sync, respond: SyncCallback) -> None:
        """Handle SyncGroup; the response is sent once the leader's assignment is committed."""
        self._run_step(lambda: syncing.sync(self, request, respond))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Handle Heartbeat; return REBALANCE_IN_PROGRESS if the member must rejoin."""
        try:
            member = check_generation(self, member_id, instance_id, generation)
        except KafkaError as error:
            return error.code
        member.restart_session()
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def leave(self, leaves: Sequence[Leave]) -> list[ErrorCode]:
        """Remove members; return one error code for each."""
        codes: list[ErrorCode] = []
        self._run_step(lambda: codes.extend(member_removal.leave(self, leave) for leave in leaves))
        return codes

    # --- description -------------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return self.roster.protocol_type or ""

    def describe(self) -> Description:
        """Return the group's description for DescribeGroups."""
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

    @property
    def member_count(self) -> int:
        return len(self.roster.members)

    @property
    def subscribed_topics(self) -> frozenset[str]:
        if self.protocol_type != CONSUMERS:
            return frozenset()
        return self.roster.topics(self.protocol) or frozenset()

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

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, version: int
    ) -> None:
        if generation < 0 and self.state is State.EMPTY:
            return
        if generation >= 0 or member_id != UNKNOWN_MEMBER or instance_id is not None:
            member = check_generation(self, member_id, instance_id, generation)
            if not transactional:
                member.restart_session()
        elif not transactional and self.state is not State.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "only members may commit offsets while the group has members")
        if self.state is State.COMPLETING_REBALANCE and not transactional:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self._check_alive()

    def check_offset_delete(self) -> None:
        self._check_alive()
        if self.state is not State.EMPTY and self.protocol_type != CONSUMERS:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP, f"subscriptions of protocol type {self.protocol_type!r} cannot be decoded"
            )

    def check_delete(self) -> None:
        self._check_alive()
        if self.state is not State.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, self.group_id)

    def _check_alive(self) -> None:
        if self.state is State.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, self.group_id)

    # --- timers ------------------------------------------------------------------------------------------------------

    def on_session_expired(self, member: Member) -> None:
        """Callback of a member's session timer."""
        self._run_step(lambda: session_expiry.expire(self, member))

    def on_pending_expired(self, member_id: str) -> None:
        """Callback of the timer of an unused member id."""
        self._run_step(lambda: member_removal.remove_pending(self, member_id))

    # --- end ---------------------------------------------------------------------------------------------------------

    def unload(self) -> None:
        if self.state is State.DEAD:
            return
        self.transition(State.DEAD)
        self.stop_timer()
        for session in self.roster.pending.values():
            session.end()
        for member in self.roster.members.values():
            self.respond_to_join(member, JoinResponse(ErrorCode.NOT_COORDINATOR, member.member_id))
            self.respond_to_sync(member, SyncResponse(ErrorCode.NOT_COORDINATOR))
            member.session.end()
            member.release()
        self.account.close()
        while self._callbacks:
            self._callbacks.popleft()()
