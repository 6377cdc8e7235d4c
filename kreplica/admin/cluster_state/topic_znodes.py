"""Reads topic state that only ZooKeeper has: reassignments, removals of partitions and deletions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kreplica.cluster import documents, znodes
from kreplica.zookeeper import SessionState, ZooKeeperClient, ZooKeeperError, read_all

T = TypeVar("T")

_SETTLED = b'"adding_replicas":{},"removing_replicas":{}'
_READ_ONLY = b'"kreplica_read_only"'


@dataclass(frozen=True, slots=True)
class Changes:
    """Ongoing changes of a topic's partitions."""

    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    read_only: frozenset[int] = frozenset()

    def is_moving(self, partition: int) -> bool:
        """Return True if replicas of a partition are added or removed, or the partition itself is removed."""
        return bool(self.adding.get(partition) or self.removing.get(partition) or partition in self.read_only)


NOTHING = Changes()


class TopicZnodes:
    """Reads the znodes; results are None while ZooKeeper is unreachable."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    async def changes(self, topics: Sequence[str]) -> Mapping[str, Changes] | None:
        """Return the ongoing changes of each topic; a missing topic has none."""
        paths = [znodes.topic_path(topic) for topic in topics]
        answers = await reached(self._client, lambda: read_all(self._client, paths))
        if answers is None:
            return None
        return {
            topic: _changes(topic, answer[0]) if isinstance(answer, tuple) else NOTHING
            for topic, answer in zip(topics, answers, strict=True)
        }

    async def deleting(self) -> frozenset[str] | None:
        """The topics that are being deleted."""
        topics = await reached(self._client, lambda: self._client.get_children(znodes.DELETE_TOPICS))
        return None if topics is None else frozenset(topics)


async def reached(client: ZooKeeperClient, read: Callable[[], Awaitable[T]]) -> T | None:
    """Return ZooKeeper's answer; None at once if it is unreachable."""
    if client.state is not SessionState.CONNECTED:
        return None
    try:
        return await read()
    except ZooKeeperError:
        return None


def _changes(topic: str, data: bytes) -> Changes:
    if _SETTLED in data and _READ_ONLY not in data:
        return NOTHING  # most of 10,000 topics have no changes, so their JSON is not parsed
    assignment = documents.decode_topic(topic, data)
    # A removed replica no longer counts, even if its files still have to be deleted.
    removing = {
        number: tuple(replica for replica in going if replica in assignment.partitions.get(number, ()))
        for number, going in assignment.removing.items()
    }
    return Changes(assignment.adding, removing, assignment.read_only)
