"""Readers of the main topic that come and go: late ones, in small pieces or from near replicas; askers of offsets."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred

from kreplica.client.errors import ClientError
from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.clients.tailing_consumer import TailingConsumer
from kreplica.testing.clients.wire_client import FETCH_SIZE_MAX, WireClient, cancel, records_of, sleep
from kreplica.testing.cluster.cluster import BROKER_PORT
from kreplica.wire.records import Record

if TYPE_CHECKING:
    from kreplica.testing.storms.replicated_run import ReplicatedRun

HOST = "readers"
LATEST = -1
WAIT_MS = 500
FETCHES_FROM_NEAREST_MAX = 20
"""Then it asks the leader again whether that is still the nearest one (as ``metadata.max.age.ms`` has clients do)."""

ASK_EACH_S = 0.5
TIMES_ASKED = 5


class PickyReader(TailingConsumer):
    """Reads a partition from its first record on, in pieces of its choice, from whichever replica it is sent to.

    :param rack: where it is; empty to read from the leader.
    :param size_max: bytes that it asks for at a time.
    :ivar sent_to: the hosts of the replicas that leaders sent it to.
    """

    def __init__(self, run: ReplicatedRun, key: TopicPartition, name: str, *, rack: str, size_max: int) -> None:
        reactor = run.cluster.simulation.host(HOST).reactor
        brokers = [(f"broker-{number}", BROKER_PORT) for number in run.cluster.brokers]
        client = LeaderClient(reactor, brokers, *key, client_id=name)
        super().__init__(reactor, client, *key, run.history)
        self.sent_to: dict[str, None] = {}
        self._key = key
        self._rack = rack
        self._size_max = size_max
        self._nearest: WireClient | None = None
        self._fetches_left = 0

    async def _read_on(self) -> None:
        try:
            await super()._read_on()
        finally:
            await self._leave_nearest()

    async def _read(self) -> None:
        if self._nearest is not None and self._fetches_left:
            self._fetches_left -= 1
            try:
                self._take(await self._fetch(self._nearest))
            except (ClientError, KafkaError):
                await self._leave_nearest()  # the leader knows better
            return
        await self._leave_nearest()
        row = await self._fetch(self._client)
        self._take(row)
        if row["preferred_read_replica"] >= 0:
            host = f"broker-{row['preferred_read_replica']}"
            self.sent_to[host] = None
            self._nearest = WireClient(self._reactor, host, BROKER_PORT, client_id=self._client.client_id)
            self._fetches_left = FETCHES_FROM_NEAREST_MAX

    async def _fetch(self, client: WireClient) -> dict[str, Any]:
        return await client.fetch_row(
            *self._key, self.position, wait_ms=WAIT_MS, size_max=self._size_max, rack=self._rack
        )

    def _take(self, row: dict[str, Any]) -> None:
        records = records_of(row, self.position)
        if records:
            self._history.read(self._partition, records, self._client.client_id)
            self.position = records[-1].offset + 1

    async def _leave_nearest(self) -> None:
        nearest, self._nearest = self._nearest, None
        if nearest is not None:
            await nearest.close()


class EndWatcher:
    """Asks one leader after the other for the end of what is committed: it may not go back.

    Each is asked with the epoch in which it was found, so that who leads no more does not answer for who does.

    :ivar seen: the epoch of the last leader that answered, and what it said; -1 before.
    """

    def __init__(self, run: ReplicatedRun, key: TopicPartition, name: str) -> None:
        self._reactor = run.cluster.simulation.host(HOST).reactor
        self._client = run.cluster.leader_client(*key, name=HOST)
        self._client.client_id = name
        self._key = key
        self.seen = (-1, -1)
        self._running = Deferred.fromCoroutine(self._ask_on())

    async def _ask_on(self) -> None:
        try:
            while True:
                try:
                    await self._ask()
                except (ClientError, KafkaError):
                    await self._client.close()
                await sleep(self._reactor, ASK_EACH_S)
        finally:
            await self._client.close()

    async def _ask(self) -> None:
        await self._client.connection()
        epoch = self._client.leader_epoch
        end = await self._client.list_offset(*self._key, LATEST, leader_epoch=epoch)
        seen_epoch, seen_end = self.seen
        if epoch < seen_epoch:
            return
        assert end >= seen_end, f"{self._key} ended at {seen_end} in epoch {seen_epoch}, and at {end} in {epoch}"
        self.seen = epoch, end

    async def abandon(self) -> None:
        """Ask no more."""
        await cancel(self._running)


class Readers:
    """All that came so far."""

    def __init__(self, run: ReplicatedRun) -> None:
        self._run = run
        self._count = 0
        self.committed_ends: dict[TopicPartition, int] = {}

    @property
    def hosts(self) -> list[str]:
        return [HOST]

    def read(self, key: TopicPartition, *, rack: str, size_max: int = FETCH_SIZE_MAX) -> PickyReader:
        """Let one more read a partition from its beginning."""
        self._count += 1
        reader = PickyReader(self._run, key, f"reader-{self._count}", rack=rack, size_max=size_max)
        reader.start()
        return reader

    def watch_end(self, key: TopicPartition) -> EndWatcher:
        """Let one more ask for the end of a partition."""
        self._count += 1
        return EndWatcher(self._run, key, f"watcher-{self._count}")

    def converge(self) -> None:
        """Whether offsets are found by the times of records."""
        for key in self._run.keys:
            random = Random(f"{self._run.seed}/times/{key.partition}")
            client = self._run.cluster.leader_client(*key, name=HOST)
            records = self._run.cluster.run_until(client.read_all(*key), timeout_s=120.0)
            for record in random.sample(records, min(TIMES_ASKED, len(records))):
                self._check_time(client, key, records, record.timestamp_ms + random.randint(-1, 1))
            self._run.cluster.run_until(client.close())

    def _check_time(self, client: LeaderClient, key: TopicPartition, records: list[Record], time_ms: int) -> None:
        expected = next((record.offset for record in records if record.timestamp_ms >= time_ms), -1)
        found = self._run.cluster.run_until(client.find_offset(*key, time_ms))
        assert found == expected, f"{key}: the first record of {time_ms} is {expected}, not {found}"


