"""What only ZooKeeper knows of topics: which replicas come and go, what is being removed, and what deleted."""

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
    """What is under way with a topic's partitions."""

    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    read_only: frozenset[int] = frozenset()

    def is_moving(self, partition: int) -> bool:
        """Whether replicas of a partition come or go, or the partition itself goes."""
        return bool(self.adding.get(partition) or self.removing.get(partition) or partition in self.read_only)


NOTHING = Changes()


class TopicZnodes:
    """Reads them; while ZooKeeper is out of reach nothing waits for it, and what it would say is None."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    async def changes(self, topics: Sequence[str]) -> Mapping[str, Changes] | None:
        """What is under way with each; a topic that is gone has nothing under way."""
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
    """What ZooKeeper answers; None at once where it is out of reach."""
    if client.state is not SessionState.CONNECTED:
        return None
    try:
        return await read()
    except ZooKeeperError:
        return None


def _changes(topic: str, data: bytes) -> Changes:
    if _SETTLED in data and _READ_ONLY not in data:
        return NOTHING  # of 10,000 topics all but a few: they need not be taken apart
    assignment = documents.decode_topic(topic, data)
    # One that is no replica any more has gone, though it may have yet to delete its files.
    removing = {
        number: tuple(replica for replica in going if replica in assignment.partitions.get(number, ()))
        for number, going in assignment.removing.items()
    }
    return Changes(assignment.adding, removing, assignment.read_only)
