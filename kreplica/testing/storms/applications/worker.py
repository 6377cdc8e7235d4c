"""Application that reads as a group member, is slow at times, and commits processed offsets."""

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
from kreplica.testing.storms.applications.history import MemberHistory

SLOW_CHANCE, SLOW_S = 0.03, (0.01, 0.1, 1.0)
STUCK_CHANCE, STUCK_S = 0.002, (5.0, 20.0, 90.0)
COMMIT_RECORDS, COMMIT_INTERVAL_S = 10, 3.0
POLL_S, POLL_RECORDS_MAX = 0.5, 20
FENCED_S = 1.0
CLASSIC = "classic"
INSTANCE_ID_IN_USE = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)


class LongDelays:
    """Switch for the workers' long delays, which are disabled at the end of a run."""

    def __init__(self) -> None:
        self.are_enabled = True


class Listener:
    """Records the assignments of one member.

    :ivar processed: position after the last record that the member has processed, by assigned partition.
    """

    def __init__(self, history: MemberHistory, member: str) -> None:
        self._history = history
        self._member = member
        self._consumer: Consumer | None = None
        self.processed: dict[TopicPartition, int] = {}

    def watch(self, consumer: Consumer, options: ConsumerOptions) -> None:
        """Record the generations of a consumer if its group uses the classic protocol."""
        self._consumer = consumer if options.group is not None and options.group.protocol == CLASSIC else None

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._history.assigned(self._member, partitions)
        identity = None if self._consumer is None else self._consumer.current_identity
        if identity is not None:
            self._history.assigned_in(identity.generation, identity.instance_id or identity.member_id, partitions)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.on_lost(partitions)

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._history.revoked(self._member, partitions)
        for partition in partitions:
            self.processed.pop(partition, None)

    def on_ended(self, error: Exception) -> None:
        """Ignore the error, which the consumer raises as well."""


class Worker(Application):
    """One member of the group.

    :param style: how records are read: "records", "batches", "polls" or "handler".
    """

    def __init__(
        self,
        host: Host,
        name: str,
        bootstrap: str,
        history: MemberHistory,
        topics: Sequence[str],
        style: str,
        options: ConsumerOptions,
        long_delays: LongDelays,
    ) -> None:
        super().__init__(host, name, bootstrap)
        self._history = history
        self._topics = topics
        self._style = style
        self._options = options
        self._long_delays = long_delays
        self._uncommitted_count = 0
        self._listener = Listener(history, name)

    async def _work(self, cluster: Cluster) -> None:
        while True:
            try:
                return await self._consume(cluster)
            except GaveUp:
                self._history.ended(self.name)  # no coordinator was available: join again
            except BrokerRefused as error:
                # Another process, perhaps one that was paused, has the instance ID: join again, as a service would.
                if error.code not in INSTANCE_ID_IN_USE or self.is_superseded:
                    raise
                self._history.ended(self.name)
                await self.sleep(FENCED_S)

    async def _consume(self, cluster: Cluster) -> None:
        async with Consumer(cluster, self._options) as consumer:
            self._listener.watch(consumer, self._options)
            await consumer.subscribe(self._topics, listener=self._listener)
            work = {
                "records": self._consume_records,
                "batches": self._consume_batches,
                "polls": self._consume_polls,
                "handler": self._consume_with_handler,
            }
            committing = None
            if self._options.auto_commit_s is None:
                committing = Deferred.fromCoroutine(self._commit_periodically(consumer))
            try:
                await work[self._style](consumer)
            except GeneratorExit:
                raise  # the process was killed
            except BaseException:
                if committing is not None:
                    await cancel(committing)
                raise

    async def _consume_records(self, consumer: Consumer) -> None:
        async for record in consumer:
            self._history.received(self.name, record.topic_partition, record.offset)
            await self._process(record)
            await self._commit_if_due(consumer)

    async def _consume_batches(self, consumer: Consumer) -> None:
        async for batch in consumer.batches():
            for record in batch.records:
                self._history.received(self.name, batch.partition, record.offset)
            for record in batch.records:
                await self._process(record)
            await self._commit_if_due(consumer)

    async def _consume_polls(self, consumer: Consumer) -> None:
        while True:
            batches = await consumer.poll(POLL_S, POLL_RECORDS_MAX)
            for batch in batches:
                for record in batch.records:
                    self._history.received(self.name, batch.partition, record.offset)
            for batch in batches:
                for record in batch.records:
                    await self._process(record)
            await self._commit_if_due(consumer)

    async def _consume_with_handler(self, consumer: Consumer) -> None:
        async def handle(record: ConsumedRecord) -> None:
            self._history.received(self.name, record.topic_partition, record.offset)
            await self._process(record)

        await consumer.run(handle)

    async def _process(self, record: ConsumedRecord) -> None:
        chance = self.random.random()
        if chance < STUCK_CHANCE and self._long_delays.are_enabled:
            await self.sleep(self.random.choice(STUCK_S))
        elif chance < SLOW_CHANCE:
            await self.sleep(self.random.choice(SLOW_S))
        key = record.topic_partition
        self._history.processed(key, record.offset)
        self._uncommitted_count += 1
        if self._history.has_received(self.name, key, record.offset):
            self._listener.processed[key] = record.offset + 1

    async def _commit_if_due(self, consumer: Consumer) -> None:
        if self._options.auto_commit_s is None and self._uncommitted_count >= COMMIT_RECORDS:
            self._uncommitted_count = 0
            await self._commit(consumer)

    async def _commit_periodically(self, consumer: Consumer) -> None:
        """Commit processed records in parallel with the reads, so that the last records are committed, too."""
        while True:
            await self.sleep(COMMIT_INTERVAL_S)
            if self._listener.processed:
                await self._commit(consumer, dict(self._listener.processed))

    async def _commit(self, consumer: Consumer, offsets: dict[TopicPartition, int] | None = None) -> None:
        commit = self._history.commit_began(self._listener.processed if offsets is None else offsets)
        try:
            await consumer.commit(offsets)
        except CommitFailed:
            self._history.commit_rejected(commit)  # another member owns the partitions
        except ClientError as error:
            self._history.commit_failed(commit)
            # A broker that has just become coordinator may not know the topic for longer than the client retries.
            code = error.code if isinstance(error, BrokerRefused) else None
            if not error.retriable and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        except BaseException:
            self._history.commit_failed(commit)  # the process was killed
            raise
        else:
            self._history.committed(commit)
