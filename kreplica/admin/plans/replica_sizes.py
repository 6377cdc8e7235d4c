"""Requests the sizes of replicas from the brokers that hold them, and caches them briefly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from twisted.internet.defer import Deferred, DeferredList

from kreplica.admin.cluster_state.published_metadata import BrokerConnections
from kreplica.client.errors import ClientError
from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.wire.messages import DESCRIBE_LOG_DIRS

REQUEST_TIMEOUT_S = 3.0
"""Timeout of a request; the sizes of a broker that does not respond are omitted."""

PARTITIONS_AT_ONCE = 500
"""Maximum number of partitions per request; its response is parsed in one reactor iteration."""

REUSE_SECONDS = 2.0
SIZES_MAX = 300_000
"""Maximum number of cached sizes."""

Replica = tuple[TopicPartition, int]


class ReplicaSizes:
    """Caches replica sizes.

    :param seconds: the reactor's clock.
    """

    def __init__(self, seconds: Callable[[], float], brokers: BrokerConnections) -> None:
        self._seconds = seconds
        self._brokers = brokers
        self._cache: dict[Replica, tuple[float, int]] = {}

    async def of(self, replicas: Iterable[Replica]) -> Mapping[Replica, int]:
        """Return the size in bytes by replica; unknown sizes are omitted."""
        requested = list(dict.fromkeys(replicas))
        oldest_s = self._seconds() - REUSE_SECONDS
        by_broker: dict[int, list[TopicPartition]] = {}
        for partition, broker in requested:
            read_s, _ = self._cache.get((partition, broker), (-1.0, 0))
            if read_s < oldest_s or (partition, broker) not in self._cache:
                by_broker.setdefault(broker, []).append(partition)
        requests = [
            Deferred.fromCoroutine(self._query_broker(broker, keys)) for broker, keys in sorted(by_broker.items())
        ]
        await DeferredList(requests, fireOnOneErrback=True, consumeErrors=True)
        return {replica: self._cache[replica][1] for replica in requested if replica in self._cache}

    async def _query_broker(self, broker: int, partitions: Sequence[TopicPartition]) -> None:
        for first in range(0, len(partitions), PARTITIONS_AT_ONCE):
            chunk = partitions[first : first + PARTITIONS_AT_ONCE]
            self._forget(broker, chunk)
            body = {"topics": _topics(chunk)}
            try:
                response = await self._brokers.request(broker, DESCRIBE_LOG_DIRS, body, timeout_s=REQUEST_TIMEOUT_S)
            except (ClientError, KafkaError):
                return
            self._store(broker, response["results"])

    def _forget(self, broker: int, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._cache.pop((partition, broker), None)

    def _store(self, broker: int, directories: Iterable[Mapping[str, object]]) -> None:
        now_s = self._seconds()
        for partition, size in _rows(directories):
            if len(self._cache) >= SIZES_MAX:
                del self._cache[next(iter(self._cache))]
            self._cache[partition, broker] = (now_s, size)


def _topics(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic.items()]


def _rows(directories: Iterable[Mapping[str, object]]) -> Iterable[tuple[TopicPartition, int]]:
    for directory in directories:
        for topic in directory["topics"]:  # type: ignore[attr-defined]
            for row in topic["partitions"]:
                if not row["is_future_key"]:
                    yield TopicPartition(topic["name"], row["partition_index"]), row["partition_size"]
