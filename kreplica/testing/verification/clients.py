"""Producers and readers of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kreplica.runtime import Runtime
from kreplica.testing.clients.idempotent_producer import IdempotentProducer
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.clients.tailing_consumer import TailingConsumer
from kreplica.testing.verification.observations import Observations
from kreplica.testing.verification.options import REQUEST_TIMEOUT_S, Address, VerificationOptions


class Clients:
    """All producers and readers of a run, with separate connections; stopped by ``abandon``.

    :param brokers: addresses for metadata requests.
    """

    def __init__(
        self,
        runtime: Runtime,
        brokers: Sequence[Address],
        topic: str,
        options: VerificationOptions,
        observations: Observations,
    ) -> None:
        self._runtime = runtime
        self._brokers = brokers
        self._topic = topic
        self._options = options
        self._observations = observations
        self.producers: list[IdempotentProducer] = []
        self.readers: list[tuple[int, TailingConsumer]] = []

    def start_producers(self) -> None:
        for partition in range(self._options.partitions):
            load = self._options.load(self._topic, partition)
            for number in range(self._options.producers):
                client = self._client(f"producer-{partition}.{number}", partition)
                producer = IdempotentProducer(self._runtime, client, load, self._observations)
                self.producers.append(producer)
                producer.start()

    def start_readers(self, name: str) -> None:
        """Start one more reader of each partition, from its beginning."""
        for partition in range(self._options.partitions):
            client = self._client(f"{name}-{partition}", partition)
            reader = TailingConsumer(self._runtime.reactor, client, self._topic, partition, self._observations)
            self.readers.append((partition, reader))
            reader.start()

    def drain(self) -> None:
        """Stop creating records; producers still send unacknowledged records."""
        for producer in self.producers:
            producer.drain()

    @property
    def all_acknowledged(self) -> bool:
        return all(producer.is_done for producer in self.producers)

    @property
    def all_read(self) -> bool:
        """True if every reader has received all acknowledged records."""
        return all(reader.position >= self._observations.ends[partition] for partition, reader in self.readers)

    @property
    def positions(self) -> int:
        return sum(reader.position for _, reader in self.readers)

    @property
    def producer_restarts(self) -> int:
        """Number of times a broker had lost a producer's state."""
        return sum(producer.resets for producer in self.producers)

    @property
    def reader_restarts(self) -> int:
        """Number of times a log ended before a reader's position."""
        return sum(reader.resets for _, reader in self.readers)

    @property
    def errors(self) -> Counter[str]:
        """Number of retried errors by name."""
        counters = [producer.errors for producer in self.producers] + [reader.errors for _, reader in self.readers]
        return sum(counters, Counter())

    async def abandon(self) -> None:
        """Stop all clients immediately.

        :raise Exception: an unexpected error had stopped one of them.
        """
        for producer in self.producers:
            await producer.abandon()
        for _, reader in self.readers:
            await reader.abandon()

    def _client(self, name: str, partition: int) -> LeaderClient:
        return LeaderClient(
            self._runtime.reactor,
            self._brokers,
            self._topic,
            partition,
            client_id=name,
            request_timeout_s=REQUEST_TIMEOUT_S,
        )
