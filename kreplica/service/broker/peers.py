"""Looks up other brokers in the metadata cache: their endpoints, liveness and replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred

from kreplica.model import Endpoint, TopicPartition
from kreplica.server.metadata.metadata_cache import MetadataCache


class Peers:
    """The other brokers in the metadata cache, for packages that must not import the cache.

    :param listener: the name of the inter-broker listener.
    """

    def __init__(self, broker_id: int, metadata: MetadataCache, listener: str) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._listener = listener

    def endpoint_of(self, broker_id: int) -> Endpoint | None:
        """Return the inter-broker endpoint of a broker; None unless the broker is known to be alive."""
        broker = self._metadata.brokers.get(broker_id)
        return broker.endpoints.get(self._listener) if broker is not None else None

    def controller(self) -> Endpoint | None:
        """Return the controller's endpoint; None if no controller is known."""
        return self.endpoint_of(self._metadata.controller_id)

    def others_live(self) -> bool:
        """Return True if another broker is alive."""
        return any(broker_id != self._broker_id for broker_id in self._metadata.brokers)

    def may_take_over(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return True if one of these partitions has another live replica."""
        return any(self._has_other_live_replica(partition) for partition in partitions)

    def _has_other_live_replica(self, key: TopicPartition) -> bool:
        topic = self._metadata.topic(key.topic)
        partition = topic.partitions.get(key.partition) if topic is not None else None
        if partition is None:
            return True  # not in the metadata yet: only the controller has the state
        live = self._metadata.brokers
        return any(replica in live for replica in partition.replicas if replica != self._broker_id)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> Deferred[bool]:
        """Return a Deferred that fires with True when the condition holds, or with False after the timeout."""
        return self._metadata.wait_until(condition, timeout_s)
