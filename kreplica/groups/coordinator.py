"""What handlers of requests call: it finds a group's shard, and says why where there is none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic.config import ClassicConfig
from kreplica.groups.classic.group import ClassicGroup
from kreplica.groups.classic.requests import (
    Description,
    Join,
    JoinAnswer,
    Joined,
    Leave,
    Sync,
    SyncAnswer,
    Synced,
)
from kreplica.groups.classic.states import State
from kreplica.groups.group import UNKNOWN_MEMBER, Group
from kreplica.groups.shard import GroupShard
from kreplica.runtime.turns import Turns

if TYPE_CHECKING:
    from kreplica.coordination.shards import Shards
    from kreplica.runtime import Runtime

NOT_FOUND = Description(State.DEAD.value)
"""What is shown of a group that does not exist."""


class Listed(NamedTuple):
    """What a list of groups says of each."""

    group_id: str
    protocol_type: str
    state_name: str
    type_name: str


class GroupCoordinator:
    """The groups that this broker coordinates; owned by the broker.

    :ivar shards: for who commits and fetches offsets.
    """

    def __init__(self, runtime: Runtime, shards: Shards[GroupShard], config: ClassicConfig) -> None:
        self._runtime = runtime
        self._config = config
        self.shards = shards

    # --- members of classic groups -----------------------------------------------------------------------------------

    def join(self, group_id: str, request: Join, answer: JoinAnswer) -> None:
        """JoinGroup."""
        try:
            group = self._group_to_join(group_id, request)
        except KafkaError as error:
            answer(Joined(error.code, request.member_id))
            return
        group.join(request, answer)

    def abandon_join(self, group_id: str, answer: JoinAnswer) -> None:
        """The connection that waits for this answer to JoinGroup is closed."""
        try:
            group = self.shards.shard_of(group_id).group(group_id)
        except KafkaError:
            return  # another broker coordinates the group: its members here were answered
        if isinstance(group, ClassicGroup):
            group.abandon_join(answer)

    def sync(self, group_id: str, request: Sync, answer: SyncAnswer) -> None:
        """SyncGroup."""
        try:
            group = _classic(self._current_shard(group_id), group_id)
        except KafkaError as error:
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            # The rebalance that it speaks of is over: it need not look for the coordinator again to join anew.
            answer(Synced(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error.code))
            return
        group.sync(request, answer)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Heartbeat.

        While ZooKeeper is out of reach a member is heard, so that no session ends for that, and yet is told to look for
        another coordinator, which there may be by now.
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
        """LeaveGroup; one answer for each who leaves.

        :raise KafkaError: what all of them are answered.
        """
        shard = self._current_shard(group_id)
        try:
            group = _classic(shard, group_id)
        except KafkaError as error:
            return [error.code] * len(leaves)
        return group.leave(leaves)

    def _shard_for_members(self, group_id: str) -> GroupShard:
        """Where there are members there is an id; offsets alone may be those of the group without a name."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group has no id")
        return self.shards.shard_of(group_id)

    def _current_shard(self, group_id: str) -> GroupShard:
        """The same, where no other broker can coordinate the group by now."""
        self._shard_for_members(group_id)
        return self.shards.current_shard_of(group_id)

    def _group_to_join(self, group_id: str, request: Join) -> ClassicGroup:
        shard = self._current_shard(group_id)
        config = self._config
        if not config.session_timeout_ms_min <= request.session_timeout_ms <= config.session_timeout_ms_max:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT, f"{request.session_timeout_ms} ms")
        if request.member_id != UNKNOWN_MEMBER and shard.group(group_id) is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        return shard.classic(group_id, request.client_host)

    # --- tools -------------------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> Description:
        """DescribeGroups: a classic group as it is now.

        :return: ``NOT_FOUND`` for one that does not exist, or is one of KIP-848.
        :raise KafkaError: another coordinates it, or it is not loaded.
        """
        group = self.shards.shard_of(group_id).group(group_id)
        return group.describe() if isinstance(group, ClassicGroup) else NOT_FOUND

    async def list_groups(self, states: Sequence[str], types: Sequence[str]) -> tuple[ErrorCode, list[Listed]]:
        """ListGroups: the groups that this broker coordinates, with offsets or with members.

        :param states: names, in any case; none are all.
        :param types: the same of types (KIP-848).
        :return: with COORDINATOR_LOAD_IN_PROGRESS while some partition is not loaded.
        """
        wanted_states = {state.lower() for state in states}
        wanted_types = {name.lower() for name in types}
        is_whole = not self.shards.is_loading and not any(shard.is_waking for shard in self.shards.loaded())
        code = ErrorCode.NONE if is_whole else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        listed = []
        turns = Turns(self._runtime.reactor)
        for shard in self.shards.loaded():
            for group in list(shard.groups.values()):
                if _is_wanted(group.state_name, wanted_states) and _is_wanted(group.type_name, wanted_types):
                    listed.append(Listed(group.group_id, group.protocol_type, group.state_name, group.type_name))
                if turns.is_over:
                    await turns.next()
        return code, listed

    def topics_removed(self, topics: Collection[str]) -> None:
        """Topics were deleted: nobody has read anything of them any more."""
        for shard in self.shards.loaded():
            shard.expiry.topics_removed(topics)

    def delete(self, group_id: str, answer: Callable[[ErrorCode], None]) -> None:
        """DeleteGroups: a group without members goes, with its offsets.

        :param answer: NONE once that is committed.
        """
        try:
            self.shards.shard_of(group_id).delete(group_id, answer)
        except KafkaError as error:
            answer(error.code)


def _classic(shard: GroupShard, group_id: str) -> ClassicGroup:
    """The group that somebody claims to be a member of.

    :raise KafkaError: UNKNOWN_MEMBER_ID, there is no such classic group.
    """
    group: Group | None = shard.group(group_id)
    if not isinstance(group, ClassicGroup):
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, group_id)
    return group


def _is_wanted(name: str, wanted: set[str]) -> bool:
    return not wanted or name.lower() in wanted
