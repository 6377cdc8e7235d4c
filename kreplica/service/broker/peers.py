"""What a broker knows of the other brokers: where to reach them, and what they could take over."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred

from kreplica.model import Endpoint, TopicPartition
from kreplica.server.metadata.metadata_cache import MetadataCache


class Neighbours:
    """A view of the metadata cache for those rooms that do not know of it.

    :param listener: the name of the listener by which brokers speak to each other.
    """

    def __init__(self, broker_id: int, metadata: MetadataCache, listener: str) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._listener = listener

    def endpoint_of(self, broker_id: int) -> Endpoint | None:
        """Where a broker listens for other brokers; None where that is not known (it may not live)."""
        broker = self._metadata.brokers.get(broker_id)
        return broker.endpoints.get(self._listener) if broker is not None else None

    def controller(self) -> Endpoint | None:
        """Where the controller is asked; None where nobody knows one."""
        return self.endpoint_of(self._metadata.controller_id)

    def others_live(self) -> bool:
        """Whether there is another broker at all."""
        return any(broker_id != self._broker_id for broker_id in self._metadata.brokers)

    def may_take_over(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether any of these has another replica that lives."""
        return any(self._lives_elsewhere(partition) for partition in partitions)

    def _lives_elsewhere(self, key: TopicPartition) -> bool:
        topic = self._metadata.topic(key.topic)
        partition = topic.partitions.get(key.partition) if topic is not None else None
        if partition is None:
            return True  # not told of yet: the controller knows
        live = self._metadata.brokers
        return any(replica in live for replica in partition.replicas if replica != self._broker_id)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> Deferred[bool]:
        """Fires with True as soon as the condition holds, with False when the time is up."""
        return self._metadata.wait_until(condition, timeout_s)
