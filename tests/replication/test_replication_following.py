"""Brokers that follow each other in virtual time: the followers' records, and the responses to clients."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from twisted.internet.defer import Deferred

from kreplica.model import TopicPartition
from kreplica.replication import Partition
from kreplica.server.fetch.partition_reads import CONSUMER, PartitionReads, Read, Reader
from kreplica.settings.definitions.replication import RACK_AWARE_SELECTOR
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.messages import DELETE_RECORDS, FETCH, INCREMENTAL_ALTER_CONFIGS, LIST_OFFSETS
from tests.support.broker_scene import batch, fetch_body

Row = dict[str, Any]
KEY = TopicPartition("t", 0)

PROMPT_S = 0.05
"""A time far below the max_wait of an idle fetch, and far above the latency of the simulated network."""


class Brokers:
    """A cluster with one topic, and helper methods."""

    def __init__(self, brokers: int = 3, *, seed: int = 1, racks: dict[int, str] | None = None, **options: Any) -> None:
        configs = options.pop("configs", {})
        self.cluster = SimulatedCluster(seed, brokers=brokers, racks=racks, **options)
        self.cluster.start()
        self.make_topic("t", brokers, configs)

    def make_topic(self, name: str, replicas: int, configs: dict[str, str] | None = None, partitions: int = 1) -> None:
        client = self.cluster.client()
        self.run(client.create_topic(name, partitions, configs or {}, replication_factor=replicas))
        self.cluster.wait_in_sync(name, range(partitions))

    def run(self, what: Any) -> Any:
        return self.cluster.run_until(what)

    @property
    def now_s(self) -> float:
        return self.cluster.simulation.now_s

    def partition(self, broker: int, key: TopicPartition = KEY) -> Partition:
        partition = self.cluster.brokers[broker].program.partitions.get(key)
        assert partition is not None
        return partition

    def topic_id(self, name: str) -> UUID:
        return self.cluster.brokers[1].program.metadata.topic_id(name)

    def leader(self, key: TopicPartition = KEY) -> int:
        return self.cluster.leader_of(*key)

    def followers(self, key: TopicPartition = KEY) -> list[int]:
        return [number for number in self.cluster.brokers if number != self.leader(key)]

    def produce(self, *values: bytes, acks: int = -1, key: TopicPartition = KEY) -> int:
        client = self.cluster.client(broker=self.leader(key))
        return int(self.run(client.produce(*key, batch(*values), acks=acks)))

    def fetch(self, broker: int, offset: int, version: int = 12, **changes: Any) -> Row:
        """Fetch one partition, and return its row in the response."""
        return self.fetch_all(broker, offset, version, **changes)["responses"][0]["partitions"][0]  # type: ignore[no-any-return]

    def fetch_all(self, broker: int, offset: int, version: int = 12, **changes: Any) -> Row:
        client = self.cluster.client(broker=broker)
        topic_id = self.partition(broker).topic_id
        body = fetch_body("t", offset, topic_id=topic_id, **changes)
        return self.run(client.request(FETCH, body, at_most=version))  # type: ignore[no-any-return]

    def list_offset(self, broker: int, timestamp: int, *, replica_id: int = -1, version: int = 9) -> tuple[int, int]:
        """Return the error code and the offset."""
        rows = [{"partition_index": 0, "timestamp": timestamp}]
        body = {"replica_id": replica_id, "isolation_level": 0, "topics": [{"name": "t", "partitions": rows}]}
        answer = self.run(self.cluster.client(broker=broker).request(LIST_OFFSETS, body, at_most=version))
        row = answer["topics"][0]["partitions"][0]
        return row["error_code"], row["offset"]

    def set_everywhere(self, name: str, value: str) -> None:
        """Change a dynamic setting of each broker, or of the topic."""
        for number in self.cluster.brokers:
            of_topic = name.endswith("replicas")
            configs = [{"name": name, "config_operation": 0, "value": value}]
            resource = {"resource_type": 2 if of_topic else 4, "resource_name": "t" if of_topic else str(number)}
            body = {"resources": [resource | {"configs": configs}], "validate_only": False}
            answer = self.run(self.cluster.client(broker=number).request(INCREMENTAL_ALTER_CONFIGS, body))
            assert answer["responses"][0]["error_code"] == 0, answer
        self.cluster.run(1)

    def same_bytes(self) -> None:
        """Return True if all replicas have the same log."""
        assert len({self.stored(number) for number in self.cluster.brokers}) == 1

    def stored(self, broker: int) -> bytes:
        log = self.partition(broker).log
        part = log.read(log.log_start_offset, size_max=1 << 30, offset_max=log.log_end_offset)
        return b"".join(piece.read() for piece in part.ranges)

    def end(self) -> None:
        assert not self.cluster.simulation.failures
        self.cluster.stop()


def test_acknowledged_records_are_on_every_replica() -> None:
    """The records are replicated byte for byte without waiting for a pending fetch."""
    brokers = Brokers(configs={"min.insync.replicas": "3"})
    brokers.produce(b"first")
    brokers.cluster.run(3)
    for number in range(20):
        began = brokers.now_s
        assert brokers.produce(b"%d" % number) == number + 1
        assert brokers.now_s - began < PROMPT_S
        assert {brokers.partition(broker).log.log_end_offset for broker in (1, 2, 3)} == {number + 2}
    brokers.same_bytes()
    brokers.cluster.run(1)
    assert {brokers.partition(broker).high_watermark for broker in (1, 2, 3)} == {21}
    brokers.end()


def test_appended_records_are_read_once_per_waiting_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers receive them when they are written, consumers when they are committed, with the current offsets."""
    brokers = Brokers(configs={"min.insync.replicas": "3"})
    brokers.produce(b"first")
    brokers.cluster.run(3)
    consumer = brokers.cluster.client(broker=brokers.leader())
    waiting = Deferred.fromCoroutine(consumer.fetch("t", 0, 1, wait_ms=5000))
    brokers.cluster.run(0.1)
    readers: Counter[int] = Counter()
    read = PartitionReads.read

    def counted(self: PartitionReads, reader: Reader, *args: Any, **named: Any) -> Read:
        readers[reader.replica_id] += 1
        return read(self, reader, *args, **named)

    monkeypatch.setattr(PartitionReads, "read", counted)
    brokers.produce(b"second")
    assert [record.value for record in brokers.run(waiting)] == [b"second"]
    followers = brokers.followers()
    # One read for the records, and one for the next fetch, which waits for more.
    assert readers == {CONSUMER: 1, followers[0]: 2, followers[1]: 2}
    brokers.cluster.run(1)
    assert {brokers.partition(broker).high_watermark for broker in (1, 2, 3)} == {2}
    brokers.end()


def test_new_topic_is_replicated_while_others_are_idle() -> None:
    """The topic's first record is acknowledged at once, even if every leader has pending fetches from its followers."""
    brokers = Brokers(configs={"min.insync.replicas": "3"})
    brokers.cluster.run(2)
    for number in range(5):
        name = f"new-{number}"
        brokers.make_topic(name, 3, {"min.insync.replicas": "3"})
        began = brokers.now_s
        brokers.produce(b"x", key=TopicPartition(name, 0))
        assert brokers.now_s - began < 0.15, "a pending fetch takes 0.5 s"
    brokers.end()


def test_records_are_synced_on_every_replica_before_the_response() -> None:
    """With ``flush.messages=1``, acknowledged records survive a power loss of all machines."""
    brokers = Brokers(configs={"min.insync.replicas": "3", "flush.messages": "1"})
    for number in range(10):
        brokers.produce(b"%d" % number)
        for broker in (1, 2, 3):
            assert brokers.partition(broker).log.durability.recovery_point == number + 1
    for machine in brokers.cluster.brokers.values():
        machine.power_loss()
    starting = [machine.start() for machine in brokers.cluster.brokers.values()]
    for one in starting:
        brokers.run(one)
    brokers.cluster.wait_in_sync("t", [0])
    brokers.run(lambda: brokers.partition(brokers.leader()).high_watermark == 10)
    client = brokers.cluster.client(broker=brokers.leader())
    assert [record.value for record in brokers.run(client.read_all("t", 0))] == [b"%d" % n for n in range(10)]
    brokers.end()


def test_follower_catches_up_after_an_outage() -> None:
    """The follower fetches responses of the requested size until it is in sync."""
    brokers = Brokers(overrides=["replica.fetch.max.bytes=20000", "replica.lag.time.max.ms=3000"])
    away = brokers.followers()[0]
    brokers.cluster.brokers[away].kill()
    brokers.run(lambda: away not in brokers.partition(brokers.leader()).leadership.isr)
    for _ in range(30):
        brokers.produce(b"x" * 10_000)
    brokers.run(brokers.cluster.brokers[away].start())
    brokers.cluster.wait_in_sync("t", [0])
    assert brokers.partition(away).log.log_end_offset == 30
    brokers.same_bytes()
    brokers.end()


def test_consumers_are_redirected_to_a_replica_in_their_rack() -> None:
    """The leader names a replica that has the requested offset; this responds once records are committed (KIP-392)."""
    brokers = Brokers(
        racks={1: "a", 2: "b", 3: "c"}, overrides=[f"replica.selector.class={RACK_AWARE_SELECTOR}"]
    )
    leader = brokers.leader()
    near = brokers.followers()[0]
    rack = {1: "a", 2: "b", 3: "c"}[near]
    own = {1: "a", 2: "b", 3: "c"}[leader]
    brokers.produce(b"x")
    brokers.cluster.run(1)
    row = brokers.fetch(leader, 0, rack_id=rack, wait_ms=60_000)
    assert (row["preferred_read_replica"], len(row["records"]), row["high_watermark"]) == (near, 0, 1)
    for elsewhere in (own, "nowhere", ""):
        row = brokers.fetch(leader, 0, rack_id=elsewhere)
        assert row["preferred_read_replica"] == -1
        assert row["records"]
    assert brokers.fetch(near, 0, rack_id=rack)["records"]
    client = brokers.cluster.client(broker=near)
    waiting = client.fetch("t", 0, 1, wait_ms=60_000)
    brokers.cluster.run(0.2)
    began = brokers.now_s
    brokers.produce(b"y")
    assert [record.value for record in brokers.run(waiting)] == [b"y"]
    assert brokers.now_s - began < PROMPT_S, "the follower gets the high watermark at once"
    brokers.end()


def test_without_a_selector_consumers_read_from_the_leader() -> None:
    """The consumer's rack does not matter."""
    brokers = Brokers(racks={1: "a", 2: "b", 3: "c"})
    brokers.produce(b"x")
    brokers.cluster.run(1)
    row = brokers.fetch(brokers.leader(), 0, rack_id="abc"[brokers.followers()[0] - 1])
    assert row["preferred_read_replica"] == -1
    assert row["records"]
    brokers.end()


def test_replica_out_of_sync_is_not_preferred() -> None:
    """A consumer would wait there for records that the leader already has."""
    brokers = Brokers(
        racks={1: "a", 2: "b", 3: "c"},
        overrides=[f"replica.selector.class={RACK_AWARE_SELECTOR}", "replica.lag.time.max.ms=2000"],
    )
    leader, (near, _) = brokers.leader(), brokers.followers()
    brokers.cluster.simulation.network.cut(f"broker-{near}", f"broker-{leader}")
    client = brokers.cluster.client(broker=leader)
    brokers.run(client.produce("t", 0, batch(b"x"), acks=1))
    brokers.run(lambda: near not in brokers.partition(leader).leadership.isr)
    assert brokers.fetch(leader, 0, rack_id="abc"[near - 1])["preferred_read_replica"] == -1
    brokers.end()


def test_debugging_consumer_reads_uncommitted_records() -> None:
    """Leaders and followers serve replica ID -2 up to the log end offset."""
    brokers = Brokers()
    leader, (follower, other) = brokers.leader(), brokers.followers()
    brokers.cluster.brokers[other].host.pause()
    client = brokers.cluster.client(broker=leader)
    brokers.run(client.produce("t", 0, batch(b"x"), acks=1))
    brokers.cluster.run(0.1)
    for broker in (leader, follower):
        assert not brokers.fetch(broker, 0)["records"], "not committed"
        assert brokers.fetch(broker, 0, replica_id=-2)["records"]
        assert brokers.list_offset(broker, -1, replica_id=-2) == (0, 1)
    assert brokers.list_offset(leader, -1) == (0, 0)
    assert brokers.list_offset(follower, -1) == (6, -1), "consumers must use the leader"
    brokers.cluster.brokers[other].host.resume()
    brokers.end()


def test_error_names_the_current_leader() -> None:
    """The response contains the leader and its address (KIP-951)."""
    brokers = Brokers(configs={"min.insync.replicas": "1"})
    brokers.make_topic("u", 1)
    leader = brokers.leader(TopicPartition("u", 0))
    client = brokers.cluster.client(broker=leader % 3 + 1)
    answer = brokers.run(client.request(FETCH, fetch_body("u", 0, topic_id=brokers.topic_id("u"))))
    row = answer["responses"][0]["partitions"][0]
    assert (row["error_code"], row["current_leader"]) == (6, {"leader_id": leader, "leader_epoch": 0})
    assert [(node["node_id"], node["host"]) for node in answer["node_endpoints"]] == [(leader, f"broker-{leader}")]
    assert brokers.fetch(brokers.followers()[0], 0, 10)["error_code"] == 6, "older consumers can read from leaders only"
    brokers.end()


def test_latest_offset_of_a_new_leader() -> None:
    """The leader's high watermark lags until its followers have fetched; consumers may already know higher end offsets
    (KIP-207)."""
    brokers = Brokers()
    brokers.cluster.run(2)
    leader = brokers.leader()
    for _ in range(5):
        brokers.produce(b"x")
    _, heir, other = brokers.partition(leader).leadership.replicas
    network = brokers.cluster.simulation.network
    network.slow(f"broker-{heir}", f"broker-{other}", (2.0, 2.0))
    assert brokers.partition(heir).high_watermark < 5
    brokers.cluster.brokers[leader].kill()
    brokers.run(lambda: brokers.leader() == heir and brokers.partition(heir).is_leader)
    assert brokers.partition(heir).high_watermark < 5
    assert brokers.list_offset(heir, -1)[0] == 78
    assert brokers.list_offset(heir, -1, version=4)[0] == 5, "older clients know LEADER_NOT_AVAILABLE"
    assert brokers.list_offset(heir, 2**60)[0] == 78
    assert brokers.list_offset(heir, -2) == (0, 0)
    assert brokers.list_offset(heir, 0)[0] == (0 if brokers.partition(heir).high_watermark else 78)
    brokers.run(lambda: brokers.partition(heir).high_watermark == 5)
    assert brokers.list_offset(heir, -1) == (0, 5)
    assert brokers.list_offset(heir, 2**60) == (0, -1)
    brokers.end()


def test_deleted_records_are_removed_from_every_replica() -> None:
    """The followers receive the new log start offset at once."""
    brokers = Brokers()
    for number in range(6):
        brokers.produce(b"%d" % number)
    brokers.cluster.run(1)
    rows = [{"partition_index": 0, "offset": 4}]
    body = {"topics": [{"name": "t", "partitions": rows}], "timeout_ms": 5000}
    answer = brokers.run(brokers.cluster.client(broker=brokers.leader()).request(DELETE_RECORDS, body))
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0
    began = brokers.now_s
    brokers.run(lambda: {brokers.partition(number).log.log_start_offset for number in (1, 2, 3)} == {4})
    assert brokers.now_s - began < PROMPT_S
    brokers.end()


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_moving_replica_is_throttled_until_it_is_in_sync(role: str) -> None:
    """3 MB at 500 kB/s take about 6 s; records produced afterwards are copied without a limit."""
    brokers = Brokers(2, overrides=["replica.lag.time.max.ms=3000", "replica.fetch.max.bytes=100000"])
    brokers.set_everywhere(f"{role}.replication.throttled.rate", "500000")
    brokers.set_everywhere(f"{role}.replication.throttled.replicas", "*")
    leader, (moves,) = brokers.leader(), brokers.followers()
    brokers.cluster.brokers[moves].kill()
    brokers.run(lambda: moves not in brokers.partition(leader).leadership.isr)
    for _ in range(30):
        brokers.produce(b"x" * 100_000)
    brokers.run(brokers.cluster.brokers[moves].start())
    began = brokers.now_s
    brokers.cluster.wait_in_sync("t", [0])
    assert 4 < brokers.now_s - began < 8
    began = brokers.now_s
    for _ in range(10):
        brokers.produce(b"x" * 100_000)
    assert brokers.now_s - began < 1
    brokers.same_bytes()
    brokers.end()
