"""Ranges: a member gets neighbouring partitions of a topic; the first members get one more, if it is not even.

Topics with as many partitions and the same subscribers are shared out alike, so that whoever reads a partition of one
reads the partition of the same number of the other: what joins of two topics by key need.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from kreplica.groups.consumer.assignment import Assignment
from kreplica.groups.consumer.assignors.assignor import Group


class RangeAssignor:
    """Static members come first, by their instance ids: a restart, with another member id, changes nothing."""

    name = "range"
    class_name = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"

    def assign(self, group: Group) -> Mapping[str, Assignment]:
        """See ``Assignor``."""
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
