"""Builds the handlers of the group APIs."""

from __future__ import annotations

from typing import Protocol

from kreplica.runtime import Runtime
from kreplica.server.authorization.authorized_operations import AuthorizedOperations
from kreplica.server.handlers.groups.consumer_group_describe import ConsumerGroupDescribe
from kreplica.server.handlers.groups.consumer_group_heartbeat import ConsumerGroupHeartbeat
from kreplica.server.handlers.groups.delete_groups import DeleteGroups
from kreplica.server.handlers.groups.describe_groups import DescribeGroups
from kreplica.server.handlers.groups.heartbeat import Heartbeat
from kreplica.server.handlers.groups.join_group import JoinGroup
from kreplica.server.handlers.groups.leave_group import LeaveGroup
from kreplica.server.handlers.groups.list_groups import ListGroups
from kreplica.server.handlers.groups.offset_commit import OffsetCommit
from kreplica.server.handlers.groups.offset_delete import OffsetDelete
from kreplica.server.handlers.groups.offset_fetch import OffsetFetch
from kreplica.server.handlers.groups.sync_group import SyncGroup
from kreplica.server.protocol.request import Handler
from kreplica.service.broker.coordinators import Coordinators
from kreplica.service.plugins import Plugins
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.wire import messages
from kreplica.wire.messages import Api


class GroupApiDependencies(Protocol):
    """Parts of a broker that the handlers of the group APIs need."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def settings(self) -> BrokerSettings: ...

    @property
    def coordinators(self) -> Coordinators: ...

    @property
    def plugins(self) -> Plugins: ...


def group_handlers(broker: GroupApiDependencies) -> list[tuple[Api, Handler]]:
    """Return the handlers of all group APIs."""
    groups, view = broker.coordinators.groups, broker.coordinators.view
    consumer_groups = broker.coordinators.consumer_groups
    operations = AuthorizedOperations(broker.plugins.permissions)
    metadata_max = broker.settings["offset.metadata.max.bytes"]
    return [
        (messages.JOIN_GROUP, JoinGroup(groups)),
        (messages.SYNC_GROUP, SyncGroup(groups)),
        (messages.HEARTBEAT, Heartbeat(groups)),
        (messages.LEAVE_GROUP, LeaveGroup(groups)),
        (messages.DESCRIBE_GROUPS, DescribeGroups(groups, operations)),
        (messages.LIST_GROUPS, ListGroups(groups)),
        (messages.DELETE_GROUPS, DeleteGroups(groups)),
        (messages.CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeat(consumer_groups)),
        (messages.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribe(consumer_groups, operations)),
        (messages.OFFSET_COMMIT, OffsetCommit(groups.shards, view, broker.runtime.wall_clock_ms, metadata_max)),
        (messages.OFFSET_FETCH, OffsetFetch(groups.shards)),
        (messages.OFFSET_DELETE, OffsetDelete(groups.shards, view)),
    ]
