"""Consume, transform, produce: each record of a topic becomes one of another, once, whatever fails (KIP-447)."""

from __future__ import annotations

from random import Random

from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.testing.clients.coordinator_client import CoordinatorClient, Refused
from kreplica.testing.clients.group_consumer import GroupConsumer, Polled, ends_of
from kreplica.testing.clients.group_member import REJOINING
from kreplica.testing.clients.transactional_producer import FENCED, TransactionalProducer
from kreplica.testing.clients.wire_client import sleep
from kreplica.testing.histories.group_history import GroupHistory

ABORT_CHANCE = 0.15
PAUSE_S_MAX = 0.5
MARK = b"#"


class Superseded(KreplicaError):
    """Somebody else has this one's transactional id."""


class Processor:
    """One process: a member of a group that reads, and a producer that writes, in one transaction after the other.

    :param group_client: that of the group's coordinator, for the producer.
    :param target: where it writes, to the partition of the same number.
    :param random: what draws how long it works, and what it aborts for no other reason.
    :ivar is_superseded: whether a newer process has its transactional id: where it is fenced, it ends.
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
        """Leave the group soon, and end."""
        self._finishing = True

    async def run(self) -> None:
        """Go on until ``finish``.

        :raise Superseded: somebody else goes on in its place.
        """
        await self._start()
        while not self._finishing:
            try:
                polled = await self._consumer.poll()
                if polled:
                    await self._process(polled)
            except Refused as error:
                await self._recover(error)
        await self._consumer.leave()
        await self._group_client.close()
        await self._producer.close()

    async def _start(self) -> None:
        if self.is_superseded:
            raise Superseded(f"another producer is {self._producer.transactional_id}")
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
        """It differs from one transaction to the next, so that every record of every attempt is told apart."""
        assert self._producer.transaction is not None
        return value.rstrip(b". ") + MARK + self._producer.transaction.encode()

    async def _recover(self, error: Refused) -> None:
        """Whatever was begun is aborted, and begun again from what is committed."""
        self._consumer.go_back()
        if error.code in REJOINING:
            self._consumer.member.refused(error)
        try:
            if error.code in FENCED:
                raise error
            await self._producer.abort()
        except Refused:
            await self._start()


def original(value: bytes) -> bytes:
    """What a record was before it was transformed."""
    return value.partition(MARK)[0]
