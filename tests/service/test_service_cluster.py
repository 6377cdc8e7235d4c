"""Orderly stops and starts of simulated brokers: their duration, and their effects on clients."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, capturedLogs, formatEvent

from kreplica.client.errors import ClientError
from kreplica.cluster import documents, znodes
from kreplica.errors import KafkaError
from kreplica.model import BrokerRegistration, Endpoint, TopicPartition
from kreplica.service.standalone.standalone import Standalone, StandaloneConfig
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import Machine, SimulatedCluster
from kreplica.testing.cluster.state import state_of
from kreplica.testing.simulator.simulation import Simulation
from kreplica.wire.batch_building import BatchBuilder
from kreplica.zookeeper import Create, Delete, ZooKeeperClient
from kreplica.zookeeper.embedded.disk_store import DiskStore

TOPIC_SETTINGS = {"min.insync.replicas": "2"}
ORDERS = TopicPartition("orders", 0)


def batch(value: bytes) -> bytes:
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, value)
    return builder.build()


def retry(simulation: Simulation, send: Callable[[], Coroutine[Deferred[Any], Any, Any]]) -> Any:
    """Send a request, retry it after retriable errors as clients do, and return the result."""
    for _ in range(200):
        try:
            return simulation.run_until(send())
        except ClientError:
            pass
        except KafkaError as error:
            if not error.code.retriable:
                raise
        simulation.run(0.05)
    raise AssertionError("the request never succeeded")


@pytest.fixture
def cluster() -> SimulatedCluster:
    """Three brokers, and a topic with a replica on each of them."""
    cluster = SimulatedCluster(seed=5, brokers=3)
    cluster.start()
    cluster.run_until(cluster.client().create_topic("orders", 3, TOPIC_SETTINGS, replication_factor=3))
    cluster.wait_in_sync("orders", range(3))
    return cluster


class TestOrderlyStop:
    def test_rolling_restart(self, cluster: SimulatedCluster) -> None:
        """Producers do not wait for a session timeout, and no record is lost."""
        producer = cluster.leader_client("orders", 0, name="producer")
        written = []
        for number, machine in cluster.brokers.items():
            started_s = cluster.simulation.now_s
            cluster.run_until(machine.stop())
            value = b"while %d is down" % number
            retry(cluster.simulation, lambda value=value: producer.produce("orders", 0, batch(value)))
            assert cluster.simulation.now_s - started_s < 1
            written.append(value)
            cluster.run_until(machine.start())
            cluster.wait_in_sync("orders", range(3))
        records = retry(cluster.simulation, lambda: producer.read_all("orders", 0))
        assert list(dict.fromkeys(record.value for record in records)) == written

    @pytest.mark.parametrize("seed", [1, 2, 3, 4])
    def test_orderly_stops_log_no_warnings(self, seed: int) -> None:
        """Brokers are restarted one after another, and then the cluster is stopped, without a warning."""
        cluster = SimulatedCluster(seed, brokers=3)
        cluster.start()
        cluster.run_until(cluster.client().create_topic("orders", 3, TOPIC_SETTINGS, replication_factor=3))
        with capturedLogs() as logged:
            for machine in cluster.brokers.values():
                cluster.run(2)
                cluster.run_until(machine.stop())
                cluster.run_until(machine.start())
            cluster.wait_in_sync("orders", range(3))
            cluster.stop()
        assert [formatEvent(event) for event in logged if event["log_level"] >= LogLevel.warn] == []

    def test_stopped_broker_has_left_the_isr(self, cluster: SimulatedCluster) -> None:
        """The ISR no longer contains the broker, so no leader waits for it."""
        stopped = cluster.leader_of("orders", 0)
        cluster.run_until(cluster.brokers[stopped].stop())
        states = [state_of(cluster, TopicPartition("orders", partition)) for partition in range(3)]
        assert all(state is not None and stopped not in state.isr for state in states)
        assert all(state is not None and state.leader not in (stopped, -1) for state in states)

    def test_all_brokers_stop(self, cluster: SimulatedCluster) -> None:
        """Two brokers hand over their partitions; the last one cannot, and stops without waiting."""
        started_s = cluster.simulation.now_s
        for machine in cluster.brokers.values():
            cluster.run_until(machine.stop())
        assert cluster.simulation.now_s - started_s < 2
        state = state_of(cluster, ORDERS)
        assert state is not None
        assert state.isr == (3,)
        for machine in cluster.brokers.values():
            cluster.run_until(machine.start())
        cluster.wait_in_sync("orders", range(3))

    def test_stop_with_a_replica_that_cannot_follow(self, cluster: SimulatedCluster) -> None:
        """While no other replica can lead, but one might soon, the broker waits before it stops."""
        leader = cluster.leader_of("orders", 0)
        others = [number for number in cluster.brokers if number != leader]
        for number in others:
            cluster.simulation.network.cut(f"broker-{leader}", f"broker-{number}")
        # Followers that have all records would not be removed from the ISR.
        producer = cluster.leader_client("orders", 0, name="producer")
        assert cluster.run_until(producer.produce("orders", 0, batch(b"behind"), acks=1)) == 0
        cluster.run_until(lambda: (state := state_of(cluster, ORDERS)) is not None and state.isr == (leader,), 120)
        started_s = cluster.simulation.now_s
        stopped = cluster.brokers[leader].stop()
        cluster.run(3)
        cluster.simulation.network.heal()
        cluster.run_until(stopped)
        assert cluster.simulation.now_s - started_s < 60
        assert retry(cluster.simulation, lambda: producer.produce("orders", 0, batch(b"on"))) == 1


class TestOneProcess:
    def test_three_brokers_in_one_process(self) -> None:
        """Acknowledged records are on all three brokers of ``standalone`` and survive a restart; stopping is fast."""
        simulation = Simulation(seed=1)
        host = simulation.host("laptop")
        settings = ("default.replication.factor=3", "min.insync.replicas=2")
        config = StandaloneConfig("/data", brokers=3, overrides=settings)

        def build(runtime: Any) -> Standalone:
            store = DiskStore("/data/coordinator", runtime.disk, runtime.offload)
            return Standalone(runtime, config, store=store)

        machine = Machine(host, build)
        simulation.run_until(machine.start())
        client = WireClient(host.reactor, "127.0.0.1", 9092, client_id="client")
        simulation.run_until(client.create_topic("orders", 1, replication_factor=-1))
        leader = leader_of(simulation, client)
        client = WireClient(host.reactor, "127.0.0.1", 9091 + leader, client_id="client")
        retry(simulation, lambda: client.produce("orders", 0, batch(b"kept")))
        for number in (1, 2, 3):
            assert simulation.host("laptop").disk.exists(f"/data/broker-{number}/orders-0")
        started_s = simulation.now_s
        simulation.run_until(machine.stop())
        assert simulation.now_s - started_s < 2
        simulation.run_until(machine.start())
        client = WireClient(host.reactor, "127.0.0.1", 9092, client_id="client")
        client = WireClient(host.reactor, "127.0.0.1", 9091 + leader_of(simulation, client), client_id="client")
        records = retry(simulation, lambda: client.read_all("orders", 0))
        assert [record.value for record in records] == [b"kept"]


def leader_of(simulation: Simulation, client: WireClient) -> int:
    """Wait until partition 0 has a leader, and return it."""
    for _ in range(100):
        (topic,) = simulation.run_until(client.metadata())["topics"]
        leader = topic["partitions"][0]["leader_id"]
        if leader >= 0:
            return int(leader)
        simulation.run(0.1)
    raise AssertionError("no leader")


class TestReplacedBroker:
    def test_broker_id_taken_while_the_session_was_lost(self, cluster: SimulatedCluster) -> None:
        """A broker whose ID another one has registered meanwhile stops, and does not affect that registration."""
        runtime = cluster.simulation.host("operator").runtime
        other = ZooKeeperClient(runtime.reactor, "coordinator:2181", random=runtime.random)
        cluster.run_until(other.start())
        broker = cluster.brokers[2].program
        cluster.simulation.network.cut("broker-2", "coordinator")
        cluster.run(40)
        registration = BrokerRegistration(2, (Endpoint("PLAINTEXT", "elsewhere", 9092),))
        path = znodes.broker_path(2)
        created = cluster.run_until(other.create(path, documents.encode_broker(registration), ephemeral=True))
        cluster.simulation.network.heal()
        cluster.run_until(lambda: broker.stopping)
        cluster.run(30)
        assert cluster.brokers[2].host.reactor.getDelayedCalls() == []
        assert cluster.run_until(other.exists(path)).czxid == created.stat.czxid


class TestReplacedTopic:
    def test_topic_is_replaced_without_a_controller(self, cluster: SimulatedCluster) -> None:
        """Brokers that still have files of the old topic delete them, and serve the new topic with the same name."""
        old_producer = cluster.leader_client("orders", 0, name="old")
        cluster.run_until(old_producer.produce("orders", 0, batch(b"old")))
        host = cluster.simulation.host("operator")
        zookeeper = ZooKeeperClient(host.reactor, "coordinator:2181", random=host.runtime.random)
        cluster.run_until(zookeeper.start())
        path, controller = znodes.topic_path("orders"), cluster.controller()
        assert controller is not None
        cluster.brokers[controller].kill()
        assignment = documents.decode_topic("orders", cluster.run_until(zookeeper.get_data(path))[0])
        tree = [znodes.partition_state_path("orders", number) for number in range(3)]
        tree += [znodes.partition_path("orders", number) for number in range(3)]
        deletions = [Delete(each) for each in [*tree, znodes.partitions_path("orders"), path]]
        new_topic = documents.encode_topic(replace(assignment, topic_id=UUID(int=7)))
        cluster.run_until(zookeeper.multi([*deletions, Create(path, new_topic)]))
        cluster.run_until(lambda: cluster.controller() not in (None, controller))
        cluster.run_until(cluster.brokers[controller].start())
        cluster.wait_in_sync("orders", range(3))
        producer = cluster.leader_client("orders", 0, name="new")
        cluster.run_until(producer.produce("orders", 0, batch(b"new")))
        assert [record.value for record in cluster.run_until(producer.read_all("orders", 0))] == [b"new"]
