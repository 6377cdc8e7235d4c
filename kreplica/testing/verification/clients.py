"""The producers and readers of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kreplica.runtime import Runtime
from kreplica.testing.clients.idempotent_producer import IdempotentProducer
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.clients.tailing_consumer import TailingConsumer
from kreplica.testing.verification.observations import Observations
from kreplica.testing.verification.options import ANSWER_TIMEOUT_S, Address, VerificationOptions


class Clients:
    """All that speak to the cluster in a run, each over connections of its own; ended by ``abandon``.

    :param brokers: that are asked who leads.
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
        """Begin to write to each partition."""
        for partition in range(self._options.partitions):
            load = self._options.load(self._topic, partition)
            for number in range(self._options.producers):
                client = self._client(f"producer-{partition}.{number}", partition)
                producer = IdempotentProducer(self._runtime, client, load, self._observations)
                self.producers.append(producer)
                producer.start()

    def start_readers(self, name: str) -> None:
        """Begin to read each partition from its start."""
        for partition in range(self._options.partitions):
            client = self._client(f"{name}-{partition}", partition)
            reader = TailingConsumer(self._runtime.reactor, client, self._topic, partition, self._observations)
            self.readers.append((partition, reader))
            reader.start()

    def wind_up(self) -> None:
        """Have producers make no more."""
        for producer in self.producers:
            producer.wind_up()

    @property
    def all_acknowledged(self) -> bool:
        """Whether nothing is under way any more."""
        return all(producer.is_done for producer in self.producers)

    @property
    def all_read(self) -> bool:
        """Whether every reader has come as far as acknowledgements have."""
        return all(reader.position >= self._observations.ends[partition] for partition, reader in self.readers)

    @property
    def positions(self) -> int:
        """Of all readers, added up."""
        return sum(reader.position for _, reader in self.readers)

    @property
    def producer_restarts(self) -> int:
        """How often a producer was told that what it had written is not known any more."""
        return sum(producer.resets for producer in self.producers)

    @property
    def reader_restarts(self) -> int:
        """How often a reader was told that the log ends before its position."""
        return sum(reader.resets for _, reader in self.readers)

    @property
    def errors(self) -> Counter[str]:
        """What went wrong and was tried again, by name."""
        counters = [producer.errors for producer in self.producers] + [reader.errors for _, reader in self.readers]
        return sum(counters, Counter())

    async def abandon(self) -> None:
        """End all of them at once.

        :raise Exception: one had ended by an error that nobody foresaw.
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
            answer_timeout_s=ANSWER_TIMEOUT_S,
        )
