"""Sets of topic partitions, used for targets, members and requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]
"""Partitions by topic id. Immutable; contains no topics without partitions."""

NO_PARTITIONS: Assignment = {}


def intersection(left: Assignment, right: Assignment) -> Assignment:
    """Return the partitions that are in both assignments."""
    return _without_empty((topic_id, left[topic_id] & right[topic_id]) for topic_id in left if topic_id in right)


def difference(left: Assignment, right: Assignment) -> Assignment:
    """Return the partitions of the first assignment that are not in the second."""
    if not right:
        return left
    return _without_empty(
        (topic_id, partitions - right.get(topic_id, frozenset())) for topic_id, partitions in left.items()
    )


def union(left: Assignment, right: Assignment) -> Assignment:
    """Return the partitions that are in at least one of the assignments."""
    if not left or not right:
        return left or right
    merged = dict(left)
    for topic_id, partitions in right.items():
        merged[topic_id] = merged.get(topic_id, frozenset()) | partitions
    return merged


def is_within(part: Assignment, whole: Assignment) -> bool:
    """Return True if all partitions of the first assignment are in the second."""
    return all(partitions <= whole.get(topic_id, frozenset()) for topic_id, partitions in part.items())


def count(assignment: Assignment) -> int:
    """Return the number of partitions."""
    return sum(map(len, assignment.values()))


def pairs(assignment: Assignment) -> Iterator[tuple[UUID, int]]:
    """Yield all partitions, sorted by topic id and partition."""
    for topic_id in sorted(assignment):
        for partition in sorted(assignment[topic_id]):
            yield topic_id, partition


def from_rows(rows: Iterable[Mapping[str, Any]]) -> Assignment:
    """Return the assignment in the rows of a message or record; a topic may occur more than once."""
    merged: dict[UUID, frozenset[int]] = {}
    for row in rows:
        if row["partitions"]:
            merged[row["topic_id"]] = merged.get(row["topic_id"], frozenset()) | frozenset(row["partitions"])
    return merged


def to_rows(assignment: Assignment) -> list[dict[str, Any]]:
    """Return an assignment as sorted rows for messages and records."""
    return [{"topic_id": topic_id, "partitions": sorted(assignment[topic_id])} for topic_id in sorted(assignment)]


def _without_empty(items: Iterable[tuple[UUID, frozenset[int]]]) -> Assignment:
    return {topic_id: partitions for topic_id, partitions in items if partitions}
