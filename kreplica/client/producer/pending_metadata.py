"""Records whose topic or partition has no metadata yet; they wait without blocking other records."""

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

LookupKey: TypeAlias = tuple[str, int | None]
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
    """Records of one topic or partition.

    :ivar waiters: Deferreds that fire when the records are no longer pending.
    """

    __slots__ = ("lookup", "records", "waiters")

    def __init__(self) -> None:
        self.records: list[PendingRecord] = []
        self.waiters: list[Deferred[None]] = []
        self.lookup: Deferred[None] | None = None


class PendingRecords:
    """Records that wait for metadata, owned by an ``Accumulator``.

    :param on_known: called with the records of a topic or partition when its metadata has been received.
    :param on_missing: called with the records of a topic or partition that was not found, and the error.
    """

    def __init__(
        self,
        cluster: Cluster,
        timeout_s: float,
        on_known: Callable[[list[PendingRecord]], None],
        on_missing: Callable[[list[PendingRecord], ClientError], None],
    ) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._on_known = on_known
        self._on_missing = on_missing
        self._queues: dict[LookupKey, _Queue] = {}

    def __contains__(self, lookup_key: LookupKey) -> bool:
        return lookup_key in self._queues

    def add(self, lookup_key: LookupKey, record: PendingRecord) -> None:
        """Add a record and look up the metadata of its topic or partition."""
        queue = self._queues.get(lookup_key)
        if queue is not None:
            queue.records.append(record)
            return
        queue = self._queues[lookup_key] = _Queue()
        queue.records.append(record)
        queue.lookup = Deferred.fromCoroutine(self._look_up(lookup_key))
        queue.lookup.addBoth(self._looked_up, lookup_key)

    def lookups(self) -> list[Deferred[None]]:
        """Return a Deferred for each pending lookup; it fires when the lookup's records are no longer pending."""
        found = []
        for queue in self._queues.values():
            waiter: Deferred[None] = Deferred()
            queue.waiters.append(waiter)
            found.append(waiter)
        return found

    def drop(self, error: ClientError) -> None:
        """Fail all waiting records."""
        for lookup_key, queue in list(self._queues.items()):
            self._remove(lookup_key, error)
            if queue.lookup is not None:
                queue.lookup.cancel()

    async def _look_up(self, lookup_key: LookupKey) -> None:
        topic, partition = lookup_key
        if partition is None:
            await self._cluster.find_topic(topic, self._timeout_s)
            return
        key = TopicPartition(topic, partition)
        await self._cluster.retrying(lambda: self._cluster.partition(key), self._timeout_s)

    def _looked_up(self, outcome: Failure | None, lookup_key: LookupKey) -> None:
        if lookup_key not in self._queues:
            return
        error: ClientError | None = None
        if isinstance(outcome, Failure):
            if isinstance(outcome.value, ClientError):
                error = outcome.value
            else:
                log.failure("cannot look up topic {topic}", outcome, topic=lookup_key[0])
                error = GaveUp(f"topic {lookup_key[0]}: {outcome.getErrorMessage()}")
        self._remove(lookup_key, error)

    def _remove(self, lookup_key: LookupKey, error: ClientError | None) -> None:
        queue = self._queues.pop(lookup_key)
        if error is None:
            self._on_known(queue.records)
        else:
            self._on_missing(queue.records, error)
        for waiter in queue.waiters:
            if not waiter.called:
                waiter.callback(None)
