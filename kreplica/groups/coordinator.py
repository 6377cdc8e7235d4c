"""Entry point for the request handlers of classic groups and for listing and deleting groups of both types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic.config import ClassicConfig
from kreplica.groups.classic.group import ClassicGroup
from kreplica.groups.classic.requests import (
    Description,
    Join,
    JoinCallback,
    JoinResponse,
    Leave,
    Sync,
    SyncCallback,
    SyncResponse,
)
from kreplica.groups.classic.states import State
from kreplica.groups.group import UNKNOWN_MEMBER, Group
from kreplica.groups.shard import GroupShard
from kreplica.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from kreplica.coordination.shards import Shards
    from kreplica.runtime import Runtime

NOT_FOUND = Description(State.DEAD.value)
"""Description of a group that does not exist."""


class ListedGroup(NamedTuple):
    """A group in ListGroups."""

    group_id: str
    protocol_type: str
    state_name: str
    type_name: str


class GroupCoordinator:
    """Finds the shard of a group and forwards requests to the group; owned by the broker.

    :ivar shards: also used to commit and fetch offsets.
    """

    def __init__(self, runtime: Runtime, shards: Shards[GroupShard], config: ClassicConfig) -> None:
        self._runtime = runtime
        self._config = config
        self.shards = shards

    # --- members of classic groups -----------------------------------------------------------------------------------

    def join(self, group_id: str, request: Join, respond: JoinCallback) -> None:
        """Handle JoinGroup."""
        try:
            group = self._group_to_join(group_id, request)
        except KafkaError as error:
            respond(JoinResponse(error.code, request.member_id))
            return
        group.join(request, respond)

    def abandon_join(self, group_id: str, respond: JoinCallback) -> None:
        """Handle the loss of the connection that is waiting for this JoinGroup response."""
        try:
            group = self.shards.shard_of(group_id).group(group_id)
        except KafkaError:
            return  # unloaded, so its pending requests have been responded to
        if isinstance(group, ClassicGroup):
            group.abandon_join(respond)

    def sync(self, group_id: str, request: Sync, respond: SyncCallback) -> None:
        """Handle SyncGroup."""
        try:
            group = _classic(self._current_shard(group_id), group_id)
        except KafkaError as error:
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            # The rebalance ended with the previous coordinator. The client can rejoin without looking it up again.
            respond(SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error.code))
            return
        group.sync(request, respond)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Handle Heartbeat.

        Without a connection to ZooKeeper, a heartbeat extends the session, so that members do not expire, but an error
        is returned, so that the client looks for another coordinator, which may exist by now.
        """
        try:
            group = _classic(self._shard_for_members(group_id), group_id)
            code = group.heartbeat(member_id, instance_id, generation)
            self.shards.current_shard_of(group_id)
        except KafkaError as error:
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return ErrorCode.NONE if is_loading else error.code
        return code

    def leave(self, group_id: str, leaves: Sequence[Leave]) -> list[ErrorCode]:
        """Handle LeaveGroup; return one error code per member.

        :raise KafkaError: the error for the whole request.
        """
        shard = self._current_shard(group_id)
        try:
            group = _classic(shard, group_id)
        except KafkaError as error:
            return [error.code] * len(leaves)
        return group.leave(leaves)

    def _shard_for_members(self, group_id: str) -> GroupShard:
        """Return the shard of a group, whose id must not be empty; only offsets may use the empty group id."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "group_id is empty")
        return self.shards.shard_of(group_id)

    def _current_shard(self, group_id: str) -> GroupShard:
        """Like ``_shard_for_members``, but raise an error if another broker may coordinate the group by now."""
        self._shard_for_members(group_id)
        return self.shards.current_shard_of(group_id)

    def _group_to_join(self, group_id: str, request: Join) -> ClassicGroup:
        shard = self._current_shard(group_id)
        config = self._config
        if not config.session_timeout_ms_min <= request.session_timeout_ms <= config.session_timeout_ms_max:
            raise KafkaError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"{request.session_timeout_ms} ms is not between group.min.session.timeout.ms "
                f"({config.session_timeout_ms_min}) and group.max.session.timeout.ms ({config.session_timeout_ms_max})",
            )
        if request.member_id != UNKNOWN_MEMBER and shard.group(group_id) is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        return shard.classic(group_id, request.client_host)

    # --- admin -------------------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> Description:
        """Handle DescribeGroups.

        :return: ``NOT_FOUND`` if there is no classic group with this id.
        :raise KafkaError: another broker coordinates the group, or it is not loaded yet.
        """
        group = self.shards.shard_of(group_id).group(group_id)
        return group.describe() if isinstance(group, ClassicGroup) else NOT_FOUND

    async def list_groups(self, states: Sequence[str], types: Sequence[str]) -> tuple[ErrorCode, list[ListedGroup]]:
        """Handle ListGroups: all groups of this broker that have offsets or members.

        :param states: state names, ignoring case; empty for all.
        :param types: group types, ignoring case; empty for all (KIP-848).
        :return: COORDINATOR_LOAD_IN_PROGRESS with a partial list while a partition is being loaded; otherwise NONE.
        """
        states_filter = {state.lower() for state in states}
        types_filter = {name.lower() for name in types}
        is_restoring = any(shard.is_restoring for shard in self.shards.loaded_shards())
        is_complete = not self.shards.is_loading and not is_restoring
        code = ErrorCode.NONE if is_complete else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        listed = []
        time_slice = TimeSlice(self._runtime.reactor)
        for shard in self.shards.loaded_shards():
            for group in list(shard.groups.values()):
                if _matches_filter(group.state_name, states_filter) and _matches_filter(group.type_name, types_filter):
                    listed.append(ListedGroup(group.group_id, group.protocol_type, group.state_name, group.type_name))
                if time_slice.is_over:
                    await time_slice.next()
        return code, listed

    def topics_removed(self, topics: Collection[str]) -> None:
        """Remove the offsets of deleted topics."""
        for shard in self.shards.loaded_shards():
            shard.expiry.topics_removed(topics)

    def delete(self, group_id: str, respond: Callable[[ErrorCode], None]) -> None:
        """Handle DeleteGroups: delete a group that has no members, with its offsets.

        :param respond: called with NONE once the deletion is committed, otherwise with the error.
        """
        try:
            self.shards.shard_of(group_id).delete(group_id, respond)
        except KafkaError as error:
            respond(error.code)


def _classic(shard: GroupShard, group_id: str) -> ClassicGroup:
    """Return the classic group that a client claims to be a member of.

    :raise KafkaError: UNKNOWN_MEMBER_ID if there is no such classic group.
    """
    group: Group | None = shard.group(group_id)
    if not isinstance(group, ClassicGroup):
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, group_id)
    return group


def _matches_filter(name: str, accepted: set[str]) -> bool:
    return not accepted or name.lower() in accepted
