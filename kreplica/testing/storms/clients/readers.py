"""Short-lived readers of the main topic, and checks of high watermarks and of offset queries by timestamp.

Readers start at the first record, and use small or large fetches from the leader or from the nearest replica.
"""

from __future__ import annotations

from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.client.errors import ClientError
from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.testing.clients.fetched_records import records_of
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.clients.tailing_consumer import TailingConsumer
from kreplica.testing.clients.wire_client import FETCH_SIZE_MAX, WireClient, cancel
from kreplica.testing.cluster.cluster import BROKER_PORT
from kreplica.testing.storms.cluster_run import ClusterRun
from kreplica.wire.records import Record

HOST = "readers"
LATEST = -1
WAIT_MS = 500
FETCHES_FROM_NEAREST_MAX = 20
"""Number of fetches from a follower before the leader is asked again, as after ``metadata.max.age.ms``."""

QUERY_INTERVAL_S = 0.5
TIMESTAMPS_CHECKED = 5


class RackAwareReader(TailingConsumer):
    """Reads a partition from its first record, from the replica that the leader prefers (KIP-392).

    :param rack: the reader's rack; empty to read from the leader.
    :param size_max: maximum bytes of a fetch.
    :ivar preferred: hosts of the preferred replicas that leaders returned.
    """

    def __init__(self, run: ClusterRun, key: TopicPartition, name: str, *, rack: str, size_max: int) -> None:
        reactor = run.cluster.simulation.host(HOST).reactor
        brokers = [(f"broker-{number}", BROKER_PORT) for number in run.cluster.brokers]
        client = LeaderClient(reactor, brokers, *key, client_id=name)
        super().__init__(reactor, client, *key, run.history)
        self.preferred: dict[str, None] = {}
        self._key = key
        self._rack = rack
        self._size_max = size_max
        self._nearest: WireClient | None = None
        self._fetches_left = 0

    async def _read_until_finished(self) -> None:
        try:
            await super()._read_until_finished()
        finally:
            await self._leave_nearest()

    async def _read(self) -> None:
        if self._nearest is not None and self._fetches_left:
            self._fetches_left -= 1
            try:
                self._receive(await self._fetch(self._nearest))
            except (ClientError, KafkaError):
                await self._leave_nearest()  # ask the leader again
            return
        await self._leave_nearest()
        row = await self._fetch(self._client)
        self._receive(row)
        if row["preferred_read_replica"] >= 0:
            host = f"broker-{row['preferred_read_replica']}"
            self.preferred[host] = None
            self._nearest = WireClient(self._reactor, host, BROKER_PORT, client_id=self._client.client_id)
            self._fetches_left = FETCHES_FROM_NEAREST_MAX

    async def _fetch(self, client: WireClient) -> dict[str, Any]:
        return await client.fetch_row(
            *self._key, self.position, wait_ms=WAIT_MS, size_max=self._size_max, rack=self._rack
        )

    def _receive(self, row: dict[str, Any]) -> None:
        records = records_of(row, self.position)
        if records:
            self._history.read(self._partition, records, self._client.client_id)
            self.position = records[-1].offset + 1

    async def _leave_nearest(self) -> None:
        nearest, self._nearest = self._nearest, None
        if nearest is not None:
            await nearest.close()


class HighWatermarkWatcher:
    """Asks leaders repeatedly for the high watermark, and checks that it never decreases.

    Requests contain the leader epoch, so that a former leader rejects them.

    :ivar seen: leader epoch and high watermark of the last response; -1 before the first.
    """

    def __init__(self, run: ClusterRun, key: TopicPartition, name: str) -> None:
        self._reactor = run.cluster.simulation.host(HOST).reactor
        self._client = run.cluster.leader_client(*key, name=HOST)
        self._client.client_id = name
        self._key = key
        self.seen = (-1, -1)
        self._running = Deferred.fromCoroutine(self._query_repeatedly())

    async def _query_repeatedly(self) -> None:
        try:
            while True:
                try:
                    await self._query()
                except (ClientError, KafkaError):
                    await self._client.close()
                await pause(self._reactor, QUERY_INTERVAL_S)
        finally:
            await self._client.close()

    async def _query(self) -> None:
        await self._client.connection()
        epoch = self._client.leader_epoch
        end = await self._client.list_offset(*self._key, LATEST, leader_epoch=epoch)
        seen_epoch, seen_end = self.seen
        if epoch < seen_epoch:
            return
        assert end >= seen_end, (
            f"{self._key}: the high watermark decreased from {seen_end} (leader epoch {seen_epoch}) "
            f"to {end} (leader epoch {epoch})"
        )
        self.seen = epoch, end

    async def abandon(self) -> None:
        await cancel(self._running)


class Readers:
    """Starts readers, and checks offset queries by timestamp at the end."""

    def __init__(self, run: ClusterRun) -> None:
        self._run = run
        self._count = 0
        self.keys: list[TopicPartition] = []

    @property
    def hosts(self) -> list[str]:
        return [HOST]

    def start_reader(self, key: TopicPartition, *, rack: str, size_max: int = FETCH_SIZE_MAX) -> RackAwareReader:
        self._count += 1
        reader = RackAwareReader(self._run, key, f"reader-{self._count}", rack=rack, size_max=size_max)
        reader.start()
        return reader

    def watch_high_watermark(self, key: TopicPartition) -> HighWatermarkWatcher:
        self._count += 1
        return HighWatermarkWatcher(self._run, key, f"watcher-{self._count}")

    def converge(self) -> None:
        """Check that timestamp queries find the offsets of records."""
        for key in self._run.keys:
            random = Random(f"{self._run.seed}/times/{key.partition}")
            client = self._run.cluster.leader_client(*key, name=HOST)
            records = self._run.cluster.run_until(client.read_all(*key), timeout_s=120.0)
            for record in random.sample(records, min(TIMESTAMPS_CHECKED, len(records))):
                self._check_timestamp(client, key, records, record.timestamp_ms + random.randint(-1, 1))
            self._run.cluster.run_until(client.close())

    def _check_timestamp(self, client: LeaderClient, key: TopicPartition, records: list[Record], time_ms: int) -> None:
        expected = next((record.offset for record in records if record.timestamp_ms >= time_ms), -1)
        offset = self._run.cluster.run_until(client.find_offset(*key, time_ms))
        assert offset == expected, (
            f"{key}: the first record with a timestamp of at least {time_ms} is at offset {expected}, "
            f"but ListOffsets returned {offset}"
        )


