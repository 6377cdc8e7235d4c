"""Entry point for the request handlers of KIP-848 groups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kreplica.cluster.uuids import random_uuid, uuid_text
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer import requests
from kreplica.groups.consumer.config import ConsumerConfig
from kreplica.groups.consumer.group import ConsumerGroup
from kreplica.groups.consumer.members import JOINING
from kreplica.groups.consumer.requests import Heartbeat
from kreplica.groups.consumer.state import GroupState
from kreplica.groups.consumer.subscriptions import TopicSnapshot, regular_expressions
from kreplica.groups.consumer.target_assignment import selected_assignor
from kreplica.groups.consumer.topic_lookup import TopicLookup
from kreplica.groups.consumer.transitions import HeartbeatResponse

if TYPE_CHECKING:
    from kreplica.coordination.cluster_view import ClusterView
    from kreplica.coordination.shards import Shards
    from kreplica.groups.shard import GroupShard
    from kreplica.runtime import Runtime


class ConsumerCoordinator:
    """Handles requests of the KIP-848 groups that this broker coordinates; owned by the broker.

    :ivar view: cluster metadata.
    """

    def __init__(self, runtime: Runtime, shards: Shards[GroupShard], view: ClusterView, config: ConsumerConfig) -> None:
        self._runtime = runtime
        self._shards = shards
        self._config = config
        self._lookup = TopicLookup(runtime, view)
        self.view = view

    @property
    def heartbeat_interval_ms(self) -> int:
        """Heartbeat interval sent to members."""
        return self._config.heartbeat_interval_ms

    async def heartbeat(self, request: Heartbeat, version: int) -> HeartbeatResponse:
        """Handle ConsumerGroupHeartbeat.

        :param version: version of the request.
        :raise KafkaError: the error to send to the member.
        """
        self._check_enabled()
        requests.check(request, version, tuple(each.name for each in self._config.assignors))
        if request.regular_expression:
            self._lookup.check(request.regular_expression)
        if not request.member_id:
            request = replace(request, member_id=uuid_text(random_uuid(self._runtime.random)))
        shard, group = self._find(request)
        topics_version = self._lookup.version
        is_changed = group.topics_version != topics_version
        resolved = {}
        expressions = self._unresolved_expressions(group, request, is_changed)
        if expressions:
            resolved = await self._lookup.resolve(expressions)
            shard, group = self._find(request)  # again, because the group may have changed during the lookup
        response = group.heartbeat(request, TopicSnapshot(self.view, resolved, is_changed, topics_version))
        shard.register(group, request.client_host)
        return await response

    def describe(self, group_id: str) -> GroupState:
        """Return the committed state of a group for ConsumerGroupDescribe.

        :raise KafkaError: GROUP_ID_NOT_FOUND if there is no KIP-848 group with this id; other errors if this broker
            does not coordinate the group.
        """
        self._check_enabled()
        group = self._shards.shard_of(group_id).group(group_id)
        if not isinstance(group, ConsumerGroup) or not group.committed.epoch:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no KIP-848 group {group_id!r}")
        return group.committed

    def assignor_of(self, state: GroupState) -> str:
        """Return the name of the assignor in use for a group."""
        return selected_assignor(state, self._config.assignors).name

    def _check_enabled(self) -> None:
        if not self._config.enabled:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "group.coordinator.rebalance.protocols does not include consumer"
            )

    def _find(self, request: Heartbeat) -> tuple[GroupShard, ConsumerGroup]:
        """Return the group; if a member joins a nonexistent group, create an unregistered one.

        Without a connection to ZooKeeper, a heartbeat extends the session, so that members do not expire, but an error
        is raised, so that the client looks for another coordinator, which may exist by now.
        """
        shard = self._shards.shard_of(request.group_id)
        group = shard.consumer(request.group_id, is_new_allowed=request.member_epoch == JOINING)
        try:
            return self._shards.current_shard_of(request.group_id), group
        except KafkaError:
            group.restart_session(request.member_id)
            raise

    def _unresolved_expressions(self, group: ConsumerGroup, request: Heartbeat, is_changed: bool) -> list[str]:
        """Return the regular expressions whose matches must be looked up."""
        if request.is_leaving:
            return []
        found = []
        if is_changed:
            found = [each for each in regular_expressions(group.state) if self._lookup.can_read(each)]
        new = request.regular_expression
        if new and new not in found and (is_changed or new not in group.state.resolved):
            found.append(new)
        return found
