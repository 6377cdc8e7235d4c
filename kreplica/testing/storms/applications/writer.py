"""Application that sends numbered records with an idempotent producer, and records the outcome of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from kreplica.client.cluster import Cluster
from kreplica.client.producer import Producer, ProducerOptions, Written
from kreplica.client_core.errors import BufferFull, OutcomeUnknown
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.application import Application
from kreplica.testing.storms.applications.history import ApplicationHistory, Sent

RECORDS_MAX = 7
SIZE_MAX = 120
KEYS = 6

KEY_CHANCE, PARTITION_CHANCE, FLUSH_CHANCE, CANCEL_CHANCE = 0.4, 0.2, 0.1, 0.02
"""Probabilities that a record has a key, that the application selects its partition, that the application flushes,
and that it cancels a send."""


class Writer(Application):
    """Writes until it is stopped; then waits for the outcome of each record.

    :param partitions: number of partitions of the topic.
    :param interval_s: mean time between two sends of several records.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        bootstrap: str,
        history: ApplicationHistory,
        topic: str,
        partitions: int,
        interval_s: float,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__(host, name, bootstrap)
        self._history = history
        self._topic = topic
        self._partitions = partitions
        self._interval_s = interval_s
        self._options = ProducerOptions(**options)
        self._count = 0
        self._waiting: dict[int, Sent] = {}

    async def _work(self, cluster: Cluster) -> None:
        producer = Producer(cluster, self._options)
        try:
            while True:
                self._send_records(producer)
                if self.random.random() < FLUSH_CHANCE:
                    await producer.flush()
                await self.sleep(self.random.expovariate(1 / self._interval_s))
                await producer.room()
        except CancelledError:
            await producer.close()
            missing = [sent.value[:20] for sent in self._waiting.values()]
            if missing:
                self._history.leaks.append(f"{self.name} received no outcome for {missing}")
            raise

    def _send_records(self, producer: Producer) -> None:
        for _ in range(self.random.randint(1, RECORDS_MAX)):
            key = b"key-%d" % self.random.randrange(KEYS) if self.random.random() < KEY_CHANCE else None
            selects_partition = key is None and self.random.random() < PARTITION_CHANCE
            number = self._count
            self._count += 1
            sent = self._history.sending(self.name, number, self.random.randint(1, SIZE_MAX), key)
            self._waiting[number] = sent
            delivery = producer.send(
                self._topic,
                sent.value,
                key=key,
                partition=self.random.randrange(self._partitions) if selects_partition else None,
            )
            if self.random.random() < CANCEL_CHANCE:
                self._cancel(delivery, number)
            else:
                delivery.addCallbacks(self._written, self._failed, callbackArgs=(number,), errbackArgs=(number,))

    def _cancel(self, delivery: Deferred[Written], number: int) -> None:
        """Stop waiting for a record, which may or may not be written."""
        del self._waiting[number]
        delivery.addErrback(lambda failure: failure.trap(CancelledError, BufferFull))
        delivery.cancel()

    def _written(self, written: Written, number: int) -> None:
        self._waiting.pop(number).written = written

    def _failed(self, failure: Failure, number: int) -> None:
        sent = self._waiting.pop(number)
        sent.error = type(failure.value).__name__
        sent.is_lost = not failure.check(OutcomeUnknown)
