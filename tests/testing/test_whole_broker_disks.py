"""A simulated broker whose disk is full, fails to sync, or flips bits."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

import pytest
from broker_runs import EVERY_ACK_SYNCED, batch, retry_until_success, values
from twisted.logger import LogLevel, formatEvent, globalLogPublisher

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import TopicPartition
from kreplica.service.standalone.standalone import Standalone, StandaloneConfig
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import Machine, SimulatedCluster
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.testing.simulator.simulation import Simulation
from kreplica.wire.batches import HEADER_SIZE
from kreplica.zookeeper.embedded.disk_store import DiskStore

LOG = "/data/logs/orders-0/00000000000000000000.log"


class World:
    """A broker with a topic, a client, and a second topic that must not be affected."""

    def __init__(self, configs: dict[str, str] | None = None, overrides: Sequence[str] = ()) -> None:
        self.cluster = SimulatedCluster(seed=1, overrides=["zookeeper.session.timeout.ms=6000", *overrides])
        self.cluster.start()
        self.machine = self.cluster.brokers[1]
        self.client = self.cluster.client()
        self.cluster.run_until(self.client.create_topic("orders", configs=configs))
        self.cluster.run_until(self.client.create_topic("others", configs=configs))

    @property
    def disk(self) -> MemoryDisk:
        return self.machine.host.disk

    def produce(self, value: bytes, topic: str = "orders", *, acks: int = -1) -> Any:
        return self.cluster.run_until(self.client.produce(topic, 0, batch(value), acks=acks))

    def read(self, topic: str = "orders") -> list[bytes | None]:
        return values(self.cluster.run_until(self.client.read_all(topic, 0)))

    def rejection(self, value: bytes = b"refused", topic: str = "orders") -> ErrorCode:
        """Send a produce request that must fail, and return its error code."""
        with pytest.raises(KafkaError) as rejected:
            self.produce(value, topic)
        return rejected.value.code

    def leave_free(self, size: int) -> None:
        """Fill the disk up to this number of free bytes."""
        total, free = self.disk.usage("/data")
        self.disk.capacity_bytes = total - free + size

    def restart(self) -> None:
        """Restart the broker after ``kill -9``."""
        self.machine.kill()
        self.cluster.run_until(self.machine.start())


@pytest.fixture
def world(logged_errors: list[str]) -> World:
    return World()


class TestFull:
    def test_a_produce_that_does_not_fit(self, world: World) -> None:
        """A batch that does not fit is rejected as a whole; once there is space, the log continues without a gap."""
        world.produce(b"before")
        world.leave_free(HEADER_SIZE + 20)
        assert world.rejection(b"x" * 1000) is ErrorCode.KAFKA_STORAGE_ERROR
        assert world.read() == [b"before"]
        assert world.produce(b"small") == 1
        world.leave_free(1 << 20)
        assert world.produce(b"x" * 1000) == 2
        assert world.read() == [b"before", b"small", b"x" * 1000]
        world.restart()
        assert world.read() == [b"before", b"small", b"x" * 1000]

    def test_is_logged_once_a_minute(self, world: World) -> None:
        """A broker with a full disk logs it once a minute, not for each record."""
        logged: list[str] = []

        def observe(event: Any) -> None:
            if event.get("log_level") is LogLevel.warn and "is full" in formatEvent(event):
                logged.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        try:
            world.leave_free(0)
            for _ in range(20):
                world.rejection()
            assert len(logged) == 1
            assert logged[0].startswith("/data/logs is full")
            world.cluster.run(60)
            world.rejection()
            assert len(logged) == 2
        finally:
            globalLogPublisher.removeObserver(observe)

    def test_for_minutes(self, world: World) -> None:
        """Failed checkpoints do not take a full directory offline: reads continue, and writes resume with space."""
        world.produce(b"before")
        world.leave_free(0)
        world.cluster.run(300)
        assert world.rejection() is ErrorCode.KAFKA_STORAGE_ERROR
        assert world.read() == [b"before"]
        assert world.machine.program.not_ready() == []
        world.leave_free(1 << 20)
        assert world.produce(b"after") == 1

    def test_during_topic_creation(self, world: World, logged_errors: list[str]) -> None:
        """If a topic is created on a full disk, its log is created by the first request after space is freed."""
        world.leave_free(0)
        world.cluster.run_until(world.client.create_topic("late"))
        assert "late-0 cannot be opened" in logged_errors.pop()
        assert world.rejection(topic="late") is ErrorCode.KAFKA_STORAGE_ERROR
        world.leave_free(1 << 20)
        assert retry_until_success(world.cluster, lambda: world.client.produce("late", 0, batch(b"first"))) == 0
        world.restart()
        assert world.read("late") == [b"first"]

    def test_while_the_session_with_zookeeper_is_lost(self, world: World) -> None:
        """A broker that cannot store its session or new epochs still registers and becomes controller again."""
        broker = world.machine.program
        before = broker.fence.broker_epoch
        world.leave_free(0)
        world.cluster.simulation.network.cut("broker-1", "coordinator")
        world.cluster.run(20)
        world.cluster.simulation.network.heal()
        world.cluster.run(20)
        assert broker.fence.broker_epoch > before
        assert broker.controller.active
        assert world.rejection() is ErrorCode.KAFKA_STORAGE_ERROR
        world.leave_free(1 << 20)
        assert world.produce(b"first") == 0
        world.cluster.run_until(world.client.create_topic("made-after"))
        world.restart()
        partition = world.machine.program.partitions.led_partition(TopicPartition("orders", 0))
        assert partition.log.leader_epochs.entries != ()
        assert world.read() == [b"first"]

    @pytest.mark.parametrize("free", range(0, 4000, 250))
    def test_at_any_byte(self, logged_errors: list[str], free: int) -> None:
        """If the disk fills up during a batch, a segment roll or an index write, acknowledged records exist once."""
        world = World({"segment.bytes": "1500", "index.interval.bytes": "100"})
        written: list[bytes] = []
        rejected: set[ErrorCode] = set()

        def write(count: int) -> None:
            for _ in range(count):
                value = b"%d" % len(written)
                try:
                    world.produce(value.ljust(150, b"."))
                except KafkaError as error:
                    rejected.add(error.code)
                else:
                    written.append(value)

        write(5)
        world.leave_free(free)
        write(40)
        world.cluster.run(10)
        world.leave_free(1 << 20)
        write(5)
        assert len(written) >= 10
        assert rejected == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert [(value or b"").rstrip(b".") for value in world.read()] == written
        world.restart()
        assert [(value or b"").rstrip(b".") for value in world.read()] == written


class TestFailingSync:
    @pytest.mark.parametrize("acks", [-1, 1])
    def test_is_never_retried(self, logged_errors: list[str], acks: int) -> None:
        """After a failed sync, waiting requests fail, and the directory is offline until the broker is restarted."""
        world = World(EVERY_ACK_SYNCED)
        world.produce(b"synced", acks=acks)
        world.disk.fail("sync", LOG, times=1)
        with pytest.raises(KafkaError) as rejected:
            world.produce(b"unknown", acks=acks)
        assert rejected.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert world.rejection() is ErrorCode.KAFKA_STORAGE_ERROR
        assert world.rejection(topic="others") is ErrorCode.KAFKA_STORAGE_ERROR
        assert "/data/logs is offline" in logged_errors.pop()
        assert world.machine.program.not_ready() == ["all log directories are offline: /data/logs"]
        world.machine.power_loss()
        world.cluster.run_until(world.machine.start())
        again = world.cluster.client()
        found = values(retry_until_success(world.cluster, lambda: again.read_all("orders", 0)))
        assert found in ([b"synced"], [b"synced", b"unknown"])

    def test_default_settings_do_not_wait_for_a_sync(self, world: World) -> None:
        """Without flush.messages, acknowledgements do not wait for the disk."""
        world.produce(b"synced")
        world.cluster.run(1)
        world.disk.fail("sync", LOG, times=1)
        assert world.produce(b"unsynced") == 1
        assert world.read() == [b"synced", b"unsynced"]


class TestUnusableAtStart:
    def test_one_of_two_directories(self, logged_errors: list[str]) -> None:
        """The broker serves its other directory and creates topics there; once the device is back, it has all data."""
        world = World(overrides=["log.dirs=/data/logs,/data/more"])
        topics = ["orders", "others"]
        for topic in topics:
            world.produce(topic.encode(), topic)
        (dead,) = [topic for topic in topics if world.disk.exists(f"/data/more/{topic}-0")]
        (alive,) = [topic for topic in topics if topic != dead]
        world.machine.kill()
        world.disk.fail("open", "/data/more/*", errno.EIO)
        world.cluster.run_until(world.machine.start())
        assert any("/data/more failed at startup and is offline" in text for text in logged_errors)
        assert world.read(alive) == [alive.encode()]
        with pytest.raises(KafkaError):
            world.produce(b"refused", dead)
        assert not world.disk.exists(f"/data/logs/{dead}-0")
        world.cluster.run_until(world.client.create_topic("new"))
        world.produce(b"new", "new")
        world.disk.clear_faults()
        world.restart()
        logged_errors.clear()
        for topic in (*topics, "new"):
            assert world.read(topic) == [topic.encode()]

    def test_all_directories(self) -> None:
        """The broker does not start, and the error names the directories."""
        world = World()
        world.machine.kill()
        world.disk.fail("open", "/data/logs/*", errno.EIO)
        with pytest.raises(StorageError, match="no log directory can be used: /data/logs: "):
            world.cluster.run_until(world.machine.start())


class TestFlippedBit:
    @staticmethod
    def damaged(position: int) -> World:
        """Start a broker that has the only copy of a log, with a flipped bit below the recovery point."""
        world = World(EVERY_ACK_SYNCED)
        for number in range(10):
            world.produce(b"%d" % number)
            world.produce(b"%d" % number, "others")
        world.cluster.run(61)  # until the recovery point is checkpointed
        world.machine.kill()
        world.disk.flip_bit(LOG, position)
        world.cluster.run_until(world.machine.start())
        return world

    @pytest.mark.parametrize("position", [17, 40, HEADER_SIZE + 3])
    def test_with_intact_batch_boundaries(self, logged_errors: list[str], position: int) -> None:
        """If only one batch is damaged, it is never served; all others are, and the partition accepts new ones."""
        world = self.damaged(position)
        assert any("is damaged but stays in use" in text for text in logged_errors)
        logged_errors.clear()
        with pytest.raises(KafkaError) as rejected:
            world.cluster.run_until(world.client.fetch("orders", 0, 0))
        assert rejected.value.code is ErrorCode.CORRUPT_MESSAGE
        assert world.produce(b"10") == 10
        found = values(world.cluster.run_until(world.client.fetch("orders", 0, 1)))
        assert found == [b"%d" % number for number in range(1, 11)]

    @pytest.mark.parametrize("position", [3, 300])
    def test_below_the_recovery_point(self, logged_errors: list[str], position: int) -> None:
        """If the extent of the damage is unknown, the partition is not served; other partitions are."""
        world = self.damaged(position)
        assert "is damaged" in logged_errors.pop(0)
        assert world.rejection() is ErrorCode.KAFKA_STORAGE_ERROR
        for read in (world.client.fetch("orders", 0, 0), world.client.list_offset("orders", 0, -1)):
            with pytest.raises(KafkaError) as rejected:
                world.cluster.run_until(read)
            assert rejected.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert world.produce(b"10", "others") == 10
        assert "orders-0" in logged_errors.pop()

    def test_beyond_the_recovery_point(self, world: World) -> None:
        """Beyond the recovery point data may not be durable: the log is truncated at the damage and continues there."""
        for number in range(10):
            world.produce(b"%d" % number)
        world.machine.kill()
        world.disk.flip_bit(LOG, 300)
        world.cluster.run_until(world.machine.start())
        left = world.read()
        assert left == [b"%d" % number for number in range(len(left))]
        assert 0 < len(left) < 10
        assert world.produce(b"again") == len(left)


@pytest.mark.parametrize("seed", range(5))
def test_power_lost_just_after_the_first_start(logged_errors: list[str], seed: int) -> None:
    """The first synced record survives a power loss, although all its parent directories are new."""
    simulation = Simulation(seed)
    host = simulation.host("laptop")
    config = StandaloneConfig("/data/new/kreplica", overrides=("log.flush.interval.messages=1",))

    def standalone(runtime: Any) -> Standalone:
        store = DiskStore("/data/new/kreplica/coordinator", runtime.disk, runtime.offload)
        return Standalone(runtime, config, store=store)

    machine = Machine(host, standalone)
    simulation.run_until(machine.start())
    client = WireClient(host.reactor, "127.0.0.1", 9092, client_id="client")
    simulation.run_until(client.create_topic("orders"))
    simulation.run_until(client.produce("orders", 0, batch(b"first")))
    machine.power_loss()
    simulation.run_until(machine.start())
    simulation.run(1)  # recovered data is synced before it is served
    client = WireClient(host.reactor, "127.0.0.1", 9092, client_id="client")
    assert values(simulation.run_until(client.read_all("orders", 0))) == [b"first"]
