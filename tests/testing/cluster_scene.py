"""A coordinator, a broker and a client that never stops writing, each on a host of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.task import deferLater

from kreplica.client.connection import Connection, connect
from kreplica.client.errors import ClientError
from kreplica.service.broker import Broker
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.testing.simulation import Simulation
from kreplica.wire.batch_building import build_batch
from kreplica.wire.batches import iter_headers
from kreplica.wire.messages import CREATE_TOPICS, FETCH, PRODUCE
from kreplica.wire.records import Record, iter_records
from kreplica.zookeeper.embedded.disk_store import DiskStore
from kreplica.zookeeper.embedded.server import EmbeddedCoordinator

TOPIC = "t"
IN_FLIGHT = 3
# A broker that has just started knows neither topics nor leaders until the controller has told it.
NOT_YET = (3, 5, 6)
SETTINGS = """
broker.id=1
listeners=PLAINTEXT://broker-1:9092
log.dirs=/data/log
zookeeper.connect=coordinator:2181
log.segment.bytes=100000
"""


class Scene:
    """:param topic_configs: of the one topic, which has one partition."""

    def __init__(self, seed: int, topic_configs: dict[str, str], trace: Callable[[str], None] | None = None) -> None:
        self.simulation = Simulation(seed, trace)
        self.random = self.simulation.random
        self.coordinator_host = self.simulation.host("coordinator")
        self.broker_host = self.simulation.host("broker-1")
        self.client_host = self.simulation.host("client")
        self._topic_configs = topic_configs
        self.acknowledged: dict[int, bytes] = {}
        self.told_twice = False
        self._written_count = 0
        self.start_coordinator()
        self.start_broker()
        self.simulation.run_until(self._create_topic())

    def start_coordinator(self) -> None:
        """Start the next process of the coordinator's host."""
        host = self.coordinator_host
        host.disk.make_directories("/data/znodes")
        host.disk.sync_directory("/data")
        store = DiskStore("/data/znodes", host.disk, host.offload)
        coordinator = EmbeddedCoordinator(host.runtime, "/data/znodes", interface="", store=store)
        self.simulation.run_until(coordinator.start())

    def start_broker(self) -> None:
        """Start the next process of the broker's host."""
        settings = BrokerSettings.from_text(SETTINGS, (), origin="the scene")
        self.broker = Broker(self.broker_host.runtime, settings)
        self.simulation.run_until(self.broker.start(), timeout_s=120)

    async def connection(self) -> Connection:
        """A connection of the client to the broker."""
        made = await connect(self.client_host.reactor, "broker-1", 9092, client_id="scene", connect_timeout_s=5)
        await made.negotiate()
        return made

    async def _create_topic(self) -> None:
        connection = await self.connection()
        configs = [{"name": name, "value": value} for name, value in self._topic_configs.items()]
        topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
        body = {"topics": [topic], "timeout_ms": 30_000, "validate_only": False}
        answer = await connection.request(CREATE_TOPICS, 4, body)
        assert answer["topics"][0]["error_code"] == 0, answer
        await connection.close()

    async def write_for_ever(self) -> None:
        """Produce one value after the other, several at a time, each sent once; connect again where that is lost."""
        while True:
            try:
                connection = await self.connection()
                while not connection.closed:
                    await self._write_some(connection)
            except ClientError:
                pass
            await deferLater(self.client_host.reactor, 0.05, lambda: None)

    async def _write_some(self, connection: Connection) -> None:
        window = DeferredSemaphore(IN_FLIGHT)
        while not connection.closed:
            await window.acquire()
            writing = Deferred.fromCoroutine(self._write(connection))
            writing.addErrback(lambda failure: failure.trap(ClientError) and None)
            writing.addBoth(lambda _: window.release())

    async def _write(self, connection: Connection) -> None:
        self._written_count += 1
        value = b"%d " % self._written_count + bytes(self.random.randrange(2000))
        records = build_batch([Record(-1, self.client_host.runtime.wall_clock_ms(), None, value)])
        partition = {"index": 0, "records": records}
        body = {
            "transactional_id": None,
            "acks": 1,
            "timeout_ms": 5000,
            "topic_data": [{"name": TOPIC, "partition_data": [partition]}],
        }
        answer = (await connection.request(PRODUCE, 7, body, timeout_s=10))["responses"][0]["partition_responses"][0]
        if answer["error_code"]:
            await deferLater(self.client_host.reactor, 0.05, lambda: None)
        else:
            offset = answer["base_offset"]
            self.told_twice |= self.acknowledged.setdefault(offset, value) != value

    @property
    def acknowledged_end(self) -> int:
        """Where the log must reach."""
        return max(self.acknowledged, default=-1) + 1

    async def read_all(self) -> list[Record]:
        """Every record of the log, as a consumer gets them, once all that was acknowledged may be read."""
        connection = await self.connection()
        found: list[Record] = []
        while True:
            partition = {
                "partition": 0,
                "fetch_offset": found[-1].offset + 1 if found else 0,
                "partition_max_bytes": 1 << 20,
            }
            body: dict[str, Any] = {
                "replica_id": -1,
                "max_wait_ms": 0,
                "min_bytes": 0,
                "max_bytes": 1 << 20,
                "isolation_level": 0,
                "topics": [{"topic": TOPIC, "partitions": [partition]}],
            }
            answer = (await connection.request(FETCH, 4, body))["responses"][0]["partitions"][0]
            assert answer["error_code"] in (0, *NOT_YET), answer
            data = answer["records"] or b""
            for position, header in iter_headers(data, incomplete_last=True):
                found += iter_records(memoryview(data)[position : position + header.size])
            if answer["error_code"] == 0 and len(found) == answer["high_watermark"] >= self.acknowledged_end:
                await connection.close()
                return found
            if not data:
                await deferLater(self.client_host.reactor, 0.05, lambda: None)
