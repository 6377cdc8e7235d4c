"""Records for topics and partitions that are not known yet: they wait, and let others pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.cluster import Cluster
from kreplica.client.producer.record_batch import Waiter
from kreplica.client_core.errors import ClientError, GaveUp
from kreplica.model import TopicPartition
from kreplica.wire.records import Headers

log = Logger()

Place: TypeAlias = tuple[str, int | None]
"""A topic, or a partition of one that is known."""


class Newcomer(NamedTuple):
    """A record whose queue is not known yet."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int
    size: int
    waiter: Waiter


class _Queue:
    """:ivar records: in the order in which they came; ``waiting`` are told when they have gone on."""

    __slots__ = ("asking", "records", "waiting")

    def __init__(self) -> None:
        self.records: list[Newcomer] = []
        self.waiting: list[Deferred[None]] = []
        self.asking: Deferred[None] | None = None


class Newcomers:
    """Owned by a ``Gathering``.

    :param known: is given the records of a place that is known now; ``missing`` those of one that is not there, and
        why.
    """

    def __init__(
        self,
        cluster: Cluster,
        timeout_s: float,
        known: Callable[[list[Newcomer]], None],
        missing: Callable[[list[Newcomer], ClientError], None],
    ) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._known = known
        self._missing = missing
        self._queues: dict[Place, _Queue] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._queues

    def add(self, place: Place, record: Newcomer) -> None:
        """Let a record wait for its place."""
        queue = self._queues.get(place)
        if queue is not None:
            queue.records.append(record)
            return
        queue = self._queues[place] = _Queue()
        queue.records.append(record)
        queue.asking = Deferred.fromCoroutine(self._ask(place))
        queue.asking.addBoth(self._asked, place)

    def arrivals(self) -> list[Deferred[None]]:
        """One for each place that is waited for: fires when its records have gone on, or failed."""
        found = []
        for queue in self._queues.values():
            arrival: Deferred[None] = Deferred()
            queue.waiting.append(arrival)
            found.append(arrival)
        return found

    def drop(self, error: ClientError) -> None:
        """Fail all that wait."""
        for place, queue in list(self._queues.items()):
            self._leave(place, error)
            if queue.asking is not None:
                queue.asking.cancel()

    async def _ask(self, place: Place) -> None:
        topic, partition = place
        if partition is None:
            await self._cluster.find_topic(topic, self._timeout_s)
            return
        key = TopicPartition(topic, partition)
        await self._cluster.retrying(lambda: self._cluster.partition(key), self._timeout_s)

    def _asked(self, outcome: Failure | None, place: Place) -> None:
        if place not in self._queues:
            return
        error: ClientError | None = None
        if isinstance(outcome, Failure):
            if isinstance(outcome.value, ClientError):
                error = outcome.value
            else:
                log.failure("looking for topic {topic}", outcome, topic=place[0])
                error = GaveUp(f"topic {place[0]}: {outcome.getErrorMessage()}")
        self._leave(place, error)

    def _leave(self, place: Place, error: ClientError | None) -> None:
        queue = self._queues.pop(place)
        if error is None:
            self._known(queue.records)
        else:
            self._missing(queue.records, error)
        for arrival in queue.waiting:
            if not arrival.called:
                arrival.callback(None)
