"""Consume-transform-produce application with exactly-once semantics (KIP-447)."""

from __future__ import annotations

from random import Random

from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.testing.clients.coordinator_client import CoordinatorClient, RequestRejected
from kreplica.testing.clients.group_consumer import GroupConsumer, Polled, ends_of
from kreplica.testing.clients.group_member import REJOIN_ERRORS
from kreplica.testing.clients.transactional_producer import FENCED, TransactionalProducer
from kreplica.testing.clients.wire_client import sleep
from kreplica.testing.histories.group_history import GroupHistory

ABORT_CHANCE = 0.15
PAUSE_S_MAX = 0.5
SEPARATOR = b"#"


class Superseded(KreplicaError):
    """A newer process uses this one's transactional ID."""


class Processor:
    """Process with a group member that reads and a producer that writes, in one transaction after the other.

    :param group_client: client of the group's coordinator, for the producer.
    :param target: target topic; records keep their partition number.
    :param random: determines processing times and random aborts.
    :ivar is_superseded: set when a newer process uses the transactional ID, so that this one ends when fenced.
    """

    def __init__(
        self,
        consumer: GroupConsumer,
        producer: TransactionalProducer,
        group_client: CoordinatorClient,
        target: str,
        history: GroupHistory,
        random: Random,
    ) -> None:
        self.is_superseded = False
        self._consumer = consumer
        self._producer = producer
        self._group_client = group_client
        self._target = target
        self._history = history
        self._random = random
        self._finishing = False

    def finish(self) -> None:
        """Make ``run`` leave the group and return."""
        self._finishing = True

    async def run(self) -> None:
        """Process records until ``finish``.

        :raise Superseded: a newer process has replaced this one.
        """
        await self._start()
        while not self._finishing:
            try:
                polled = await self._consumer.poll()
                if polled:
                    await self._process(polled)
            except RequestRejected as error:
                await self._recover(error)
        await self._consumer.leave()
        await self._group_client.close()
        await self._producer.close()

    async def _start(self) -> None:
        if self.is_superseded:
            raise Superseded(f"another producer uses {self._producer.transactional_id}")
        await self._producer.start()

    async def _process(self, polled: Polled) -> None:
        producer, group = self._producer, self._consumer.member.metadata
        offsets = ends_of(polled)
        await producer.begin()
        for key, records in polled.items():
            values = [self._transformed(record.value or b"") for record in records]
            await producer.send(TopicPartition(self._target, key.partition), values)
        await sleep(self._consumer.reactor, self._random.uniform(0, PAUSE_S_MAX))
        await producer.send_offsets(offsets, group, self._group_client)
        if self._random.random() < ABORT_CHANCE:
            await producer.abort()
            return
        await producer.commit()
        self._history.decided(offsets)
        self._consumer.advance(offsets)

    def _transformed(self, value: bytes) -> bytes:
        """Append the transaction's name to a value, so that the records of all attempts differ."""
        assert self._producer.transaction is not None
        return value.rstrip(b". ") + SEPARATOR + self._producer.transaction.encode()

    async def _recover(self, error: RequestRejected) -> None:
        """Abort the transaction, and continue from the committed offsets."""
        self._consumer.reset_positions()
        if error.code in REJOIN_ERRORS:
            self._consumer.member.refused(error)
        try:
            if error.code in FENCED:
                raise error
            await self._producer.abort()
        except RequestRejected:
            await self._start()


def original(value: bytes) -> bytes:
    """Return the source value of a transformed value."""
    return value.partition(SEPARATOR)[0]
