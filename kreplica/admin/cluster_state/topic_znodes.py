"""Reads topic state that is only in ZooKeeper: reassignments, partition removals and topic deletions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from kreplica.cluster import documents, znodes
from kreplica.runtime import Reactor
from kreplica.zookeeper import SessionState, ZooKeeperClient, ZooKeeperError, read_all

T = TypeVar("T")

READ_SECONDS_MAX = 1.0
"""Maximum time of a read: ZooKeeper may be unreachable although the connection looks intact."""

TOPICS_AT_ONCE = 500
"""Number of topics that are read together, which takes about two milliseconds."""

_NO_REASSIGNMENT = b'"adding_replicas":{},"removing_replicas":{}'
_READ_ONLY = b'"kreplica_read_only"'


@dataclass(frozen=True, slots=True)
class Changes:
    """Ongoing changes to a topic's partitions.

    :param adding: replicas that are being added, by partition.
    :param removing: replicas that are being removed, by partition.
    :param read_only: partitions that are being removed.
    """

    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    read_only: frozenset[int] = frozenset()

    def is_moving(self, partition: int) -> bool:
        """Return True if the partition is being removed, or replicas are being added to or removed from it."""
        return bool(self.adding.get(partition) or self.removing.get(partition) or partition in self.read_only)


NO_CHANGES = Changes()


class TopicZnodes:
    """Reads the state of topics; results are None while ZooKeeper is unreachable."""

    def __init__(self, reactor: Reactor, client: ZooKeeperClient) -> None:
        self._reactor = reactor
        self._client = client

    async def changes(self, topics: Sequence[str]) -> Mapping[str, Changes] | None:
        """Return the ongoing changes of each topic; a missing topic has none."""
        found: dict[str, Changes] = {}
        for start in range(0, len(topics), TOPICS_AT_ONCE):
            chunk = topics[start : start + TOPICS_AT_ONCE]
            paths = [znodes.topic_path(topic) for topic in chunk]
            responses = await read_if_connected(self._reactor, self._client, partial(read_all, self._client, paths))
            if responses is None:
                return None
            for topic, response in zip(chunk, responses, strict=True):
                found[topic] = _changes(topic, response[0]) if isinstance(response, tuple) else NO_CHANGES
        return found

    async def deleting(self) -> frozenset[str] | None:
        """Return the topics that are being deleted."""
        topics = await read_if_connected(
            self._reactor, self._client, lambda: self._client.get_children(znodes.DELETE_TOPICS)
        )
        return None if topics is None else frozenset(topics)


async def read_if_connected(reactor: Reactor, client: ZooKeeperClient, read: Callable[[], Awaitable[T]]) -> T | None:
    """Return the result of a read; None if the client is not connected, or the read fails or takes too long."""
    if client.state is not SessionState.CONNECTED:
        return None
    try:
        reading = Deferred.fromCoroutine(_awaited(read()))
        return await reading.addTimeout(READ_SECONDS_MAX, cast(IReactorTime, reactor))
    except (ZooKeeperError, TimeoutError):
        return None


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def _changes(topic: str, data: bytes) -> Changes:
    if _NO_REASSIGNMENT in data and _READ_ONLY not in data:
        return NO_CHANGES  # most of 10,000 topics have no changes, so their JSON is not parsed
    assignment = documents.decode_topic(topic, data)
    # A replica that already left the assignment is omitted, even if its files are not deleted yet.
    removing = {
        number: tuple(replica for replica in replicas if replica in assignment.partitions.get(number, ()))
        for number, replicas in assignment.removing.items()
    }
    return Changes(assignment.adding, removing, assignment.read_only)
