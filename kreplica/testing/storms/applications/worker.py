"""An application that reads as a member of a group, is slow at times, and commits behind what is done."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred

from kreplica.client.cluster import Cluster
from kreplica.client.consumer import ConsumedRecord, Consumer, ConsumerOptions
from kreplica.client_core.errors import BrokerRefused, ClientError, CommitFailed, GaveUp
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.testing.clients.wire_client import cancel
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.application import Application
from kreplica.testing.storms.applications.history import GroupTellings

SLOW, SLOW_S = 0.03, (0.01, 0.1, 1.0)
STUCK, STUCK_S = 0.002, (5.0, 20.0, 90.0)
COMMIT_EACH, COMMIT_EACH_S = 10, 3.0
POLL_S, POLLED_MAX = 0.5, 20
FENCED_S = 1.0
TAKEN = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)


class Haste:
    """Whether whoever works for a group is to be quick now."""

    def __init__(self) -> None:
        self.is_on = False


class Listener:
    """Notes for one member what it is given, and what is taken from it.

    :ivar done: of what it has, how far it has processed it itself.
    """

    def __init__(self, told: GroupTellings, member: str) -> None:
        self._told = told
        self._member = member
        self.done: dict[TopicPartition, int] = {}

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._told.assigned(self._member, partitions)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.on_lost(partitions)

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._told.taken(self._member, partitions)
        for partition in partitions:
            self.done.pop(partition, None)

    def on_ended(self, error: Exception) -> None:
        """Whoever reads is told by the consumer."""


class Worker(Application):
    """One member of the group, in one of four styles.

    :param style: "records", "batches", "polls" or "handler".
    :param options: of its consumer.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        bootstrap: str,
        told: GroupTellings,
        topics: Sequence[str],
        style: str,
        options: ConsumerOptions,
        haste: Haste,
    ) -> None:
        super().__init__(host, name, bootstrap)
        self._told = told
        self._topics = topics
        self._style = style
        self._options = options
        self._haste = haste
        self._since_commit = 0
        self._listener = Listener(told, name)

    async def _work(self, cluster: Cluster) -> None:
        while True:
            try:
                return await self._consume(cluster)
            except GaveUp:
                self._told.gone(self.name)  # no coordinator was there for so long: it begins anew
            except BrokerRefused as error:
                # Another process has its instance id, one that stood still maybe: it begins anew, as a service would.
                if error.code not in TAKEN or self.is_superseded:
                    raise
                self._told.gone(self.name)
                await self.sleep(FENCED_S)

    async def _consume(self, cluster: Cluster) -> None:
        async with Consumer(cluster, self._options) as consumer:
            await consumer.subscribe(self._topics, listener=self._listener)
            work = {
                "records": self._by_records,
                "batches": self._by_batches,
                "polls": self._by_polls,
                "handler": self._by_handler,
            }
            aside = (
                None if self._options.auto_commit_s is not None else Deferred.fromCoroutine(self._commit_on(consumer))
            )
            try:
                await work[self._style](consumer)
            except GeneratorExit:
                raise  # the process is gone
            except BaseException:
                if aside is not None:
                    await cancel(aside)
                raise

    async def _by_records(self, consumer: Consumer) -> None:
        async for record in consumer:
            self._told.given(self.name, record.topic_partition, record.offset)
            await self._process(record)
            await self._commit_at_times(consumer)

    async def _by_batches(self, consumer: Consumer) -> None:
        async for batch in consumer.batches():
            for record in batch.records:
                self._told.given(self.name, batch.partition, record.offset)
            for record in batch.records:
                await self._process(record)
            await self._commit_at_times(consumer)

    async def _by_polls(self, consumer: Consumer) -> None:
        while True:
            batches = await consumer.poll(POLL_S, POLLED_MAX)
            for batch in batches:
                for record in batch.records:
                    self._told.given(self.name, batch.partition, record.offset)
            for batch in batches:
                for record in batch.records:
                    await self._process(record)
            await self._commit_at_times(consumer)

    async def _by_handler(self, consumer: Consumer) -> None:
        async def handle(record: ConsumedRecord) -> None:
            self._told.given(self.name, record.topic_partition, record.offset)
            await self._process(record)

        await consumer.run(handle)

    async def _process(self, record: ConsumedRecord) -> None:
        chance = self.random.random()
        if chance < STUCK and not self._haste.is_on:
            await self.sleep(self.random.choice(STUCK_S))
        elif chance < SLOW:
            await self.sleep(self.random.choice(SLOW_S))
        key = record.topic_partition
        self._told.processed(key, record.offset)
        self._since_commit += 1
        if key in self._told.held_by(self.name):
            self._listener.done[key] = record.offset + 1

    async def _commit_at_times(self, consumer: Consumer) -> None:
        if self._options.auto_commit_s is None and self._since_commit >= COMMIT_EACH:
            self._since_commit = 0
            await self._commit(consumer)

    async def _commit_on(self, consumer: Consumer) -> None:
        """Beside what else it does: what comes last is committed too, but nothing that is being processed."""
        while True:
            await self.sleep(COMMIT_EACH_S)
            if self._listener.done:
                await self._commit(consumer, dict(self._listener.done))

    async def _commit(self, consumer: Consumer, offsets: dict[TopicPartition, int] | None = None) -> None:
        try:
            await consumer.commit(offsets)
        except CommitFailed:
            pass  # others go on with it
        except ClientError as error:
            # A coordinator that began just now may not know the topic for a while, and longer than a member waits.
            code = error.code if isinstance(error, BrokerRefused) else None
            if not error.retriable and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
