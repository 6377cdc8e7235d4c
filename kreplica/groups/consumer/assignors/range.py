"""Range assignor: each member is assigned contiguous partitions of each topic.

If the partitions do not divide evenly, the first members are assigned one more. Topics with equal partition counts and
subscribers are co-partitioned: a member is assigned the same partition numbers of each, as joins by key require.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from kreplica.groups.consumer.assignment import Assignment
from kreplica.groups.consumer.assignors.assignor import Group


class RangeAssignor:
    """Range assignor. Static members come first, by instance id, so that restarts do not move partitions."""

    name = "range"
    class_name = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"

    def assign(self, group: Group) -> Mapping[str, Assignment]:
        shares: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in sorted(group.members)}
        for subscribers, topic_ids in group.classes():
            ranked = sorted(subscribers, key=lambda member_id: _rank(group, member_id))
            for topic_id in topic_ids:
                quota, extra = divmod(group.partition_counts[topic_id], len(ranked))
                start = 0
                for index, member_id in enumerate(ranked):
                    end = start + quota + (index < extra)
                    if end > start:
                        shares[member_id][topic_id] = frozenset(range(start, end))
                    start = end
        return shares


def _rank(group: Group, member_id: str) -> tuple[bool, str, str]:
    instance_id = group.members[member_id].instance_id
    return instance_id is None, instance_id or "", member_id
