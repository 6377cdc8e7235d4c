"""The rows of the table of APIs that are about consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kreplica.server.authorized_operations import AuthorizedOperations
from kreplica.server.handlers.consumer_group_describe import ConsumerGroupDescribe
from kreplica.server.handlers.consumer_group_heartbeat import ConsumerGroupHeartbeat
from kreplica.server.handlers.delete_groups import DeleteGroups
from kreplica.server.handlers.describe_groups import DescribeGroups
from kreplica.server.handlers.heartbeat import Heartbeat
from kreplica.server.handlers.join_group import JoinGroup
from kreplica.server.handlers.leave_group import LeaveGroup
from kreplica.server.handlers.list_groups import ListGroups
from kreplica.server.handlers.offset_commit import OffsetCommit
from kreplica.server.handlers.offset_delete import OffsetDelete
from kreplica.server.handlers.offset_fetch import OffsetFetch
from kreplica.server.handlers.sync_group import SyncGroup
from kreplica.server.request import Handler
from kreplica.wire import messages
from kreplica.wire.messages import Api

if TYPE_CHECKING:
    from kreplica.service.broker import Broker


def group_handlers(broker: Broker) -> list[tuple[Api, Handler]]:
    """What a broker that may coordinate groups serves."""
    groups, view = broker.coordinators.groups, broker.coordinators.view
    consumer_groups = broker.coordinators.consumer_groups
    operations = AuthorizedOperations(broker.plugins.gate)
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
