"""Records of topics and partitions without metadata: they wait without blocking other records."""

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
"""A topic, or a partition of a known topic."""


class PendingRecord(NamedTuple):
    """A record whose partition queue is unknown."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int
    size: int
    waiter: Waiter


class _Queue:
    """:ivar records: in order; ``waiting``: notified when they have left the queue."""

    __slots__ = ("asking", "records", "waiting")

    def __init__(self) -> None:
        self.records: list[PendingRecord] = []
        self.waiting: list[Deferred[None]] = []
        self.asking: Deferred[None] | None = None


class PendingRecords:
    """Records that wait for metadata, owned by an ``Accumulator``.

    :param known: called with records whose topic or partition is known now; ``missing``: with those of one
        that does not exist, and the error.
    """

    def __init__(
        self,
        cluster: Cluster,
        timeout_s: float,
        known: Callable[[list[PendingRecord]], None],
        missing: Callable[[list[PendingRecord], ClientError], None],
    ) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._known = known
        self._missing = missing
        self._queues: dict[Place, _Queue] = {}

    def __contains__(self, place: Place) -> bool:
        return place in self._queues

    def add(self, place: Place, record: PendingRecord) -> None:
        """Let a record wait for its topic or partition."""
        queue = self._queues.get(place)
        if queue is not None:
            queue.records.append(record)
            return
        queue = self._queues[place] = _Queue()
        queue.records.append(record)
        queue.asking = Deferred.fromCoroutine(self._ask(place))
        queue.asking.addBoth(self._asked, place)

    def arrivals(self) -> list[Deferred[None]]:
        """Return a Deferred per place that fires when its records have left the queue."""
        found = []
        for queue in self._queues.values():
            arrival: Deferred[None] = Deferred()
            queue.waiting.append(arrival)
            found.append(arrival)
        return found

    def drop(self, error: ClientError) -> None:
        """Fail all waiting records."""
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
                log.failure("cannot look up topic {topic}", outcome, topic=place[0])
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
