"""Whole brokers, assembled by the production code, with a coordinator and clients, in virtual time."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from broker_runs import batch, ordinary_use, retry_until_success, values
from twisted.internet.defer import Deferred
from twisted.web.client import Agent

from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode, KafkaError
from kreplica.service.standalone.standalone import Standalone, StandaloneConfig
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import Machine, SimulatedCluster
from kreplica.testing.simulator.simulation import Simulation
from kreplica.zookeeper import NoNode, ZooKeeperClient
from kreplica.zookeeper.embedded.disk_store import DiskStore

pytestmark = pytest.mark.usefixtures("logged_errors")


@pytest.fixture
def cluster() -> SimulatedCluster:
    """A cluster with one running broker."""
    cluster = SimulatedCluster(seed=1)
    cluster.start()
    return cluster


def operator(cluster: SimulatedCluster) -> ZooKeeperClient:
    """An operator's connected ZooKeeper client."""
    runtime = cluster.simulation.host("operator").runtime
    client = ZooKeeperClient(runtime.reactor, "coordinator:2181", random=runtime.random)
    cluster.run_until(client.start())
    return client


class TestOneSeed:
    def test_typical_requests_of_a_client(self) -> None:
        """A topic is created, written with every acks setting, read by long polls, listed and deleted."""
        lines = ordinary_use(seed=1).splitlines()
        seen = next(line for line in lines if line.startswith("["))
        assert seen.startswith("[0, 2, [Record(offset=2")
        assert "value=b'fourth'" in seen
        assert seen.endswith(", []]"), "after the deletion there are no topics"

    def test_determines_the_run(self) -> None:
        """The same seed gives the same events and bytes on disk; another seed gives different ones."""
        first = ordinary_use(seed=1)
        assert ordinary_use(seed=1) == first
        assert ordinary_use(seed=2) != first

    @pytest.mark.parametrize("hash_seed", ["1", "2"])
    def test_determines_the_run_in_any_process(self, hash_seed: str) -> None:
        """Another process with a different hash seed gives the same result."""
        script = Path(__file__).with_name("broker_runs.py")
        finished = subprocess.run(
            [sys.executable, str(script), "1"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert finished.stdout == ordinary_use(seed=1) + "\n"

    def test_idle_time_is_cheap(self, cluster: SimulatedCluster) -> None:
        """An idle broker causes a few thousand events per hour, and accumulates nothing."""
        cluster.run(60)
        pending, events = len(cluster.simulation.scheduler.pending()), cluster.simulation.scheduler.event_count
        cluster.run(3600)
        assert len(cluster.simulation.scheduler.pending()) <= pending + 2
        assert cluster.simulation.scheduler.event_count - events < 20_000


class TestStopping:
    def test_in_order(self, cluster: SimulatedCluster) -> None:
        """A broker that was stopped cleanly leaves no timer, is deregistered, and scans no log at its next start."""
        client = cluster.client()
        cluster.run_until(client.create_topic("orders"))
        cluster.run_until(client.produce("orders", 0, batch(b"kept")))
        machine = cluster.brokers[1]
        cluster.run_until(machine.program.stop())
        assert machine.host.reactor.getDelayedCalls() == []
        gc.collect()
        assert machine.host.disk.open_paths == []
        watcher = operator(cluster)
        assert cluster.run_until(watcher.get_children(znodes.BROKER_IDS)) == []
        machine.kill()
        cluster.run_until(machine.start())
        assert machine.program.directories.clean_broker_epoch is not None
        assert values(retry_until_success(cluster, lambda: client.read_all("orders", 0))) == [b"kept"]

    def test_with_fetches_and_produces_under_way(self, cluster: SimulatedCluster) -> None:
        """Waiting clients receive a response, or lose the connection, within a few seconds of the stop."""
        client = cluster.client()
        cluster.run_until(client.create_topic("orders"))
        waiting: list[Any] = []
        cluster.run_until(client.connection())
        Deferred.fromCoroutine(client.fetch("orders", 0, 0, wait_ms=60_000)).addBoth(waiting.append)
        cluster.run(1)
        assert waiting == []
        started_s = cluster.simulation.now_s
        cluster.run_until(cluster.brokers[1].stop())
        cluster.run_until(lambda: bool(waiting))
        assert cluster.simulation.now_s - started_s < 10


class TestSeveralBrokers:
    def test_in_one_process(self) -> None:
        """Three brokers in a standalone process form one cluster; each has its own port, directory and partitions."""
        simulation = Simulation(seed=1)
        host = simulation.host("laptop")
        config = StandaloneConfig("/data", brokers=3)
        machine = Machine(
            host,
            lambda runtime: Standalone(
                runtime, config, store=DiskStore("/data/coordinator", runtime.disk, runtime.offload)
            ),
        )
        simulation.run_until(machine.start())
        clients = [WireClient(host.reactor, "127.0.0.1", 9092 + i, client_id=f"client-{i}") for i in range(3)]
        simulation.run_until(clients[0].create_topic("orders", 3))
        simulation.run(1)  # until the other brokers receive the change
        leaders = _leaders(simulation.run_until(clients[1].metadata()), "orders")
        assert sorted(leaders.values()) == [1, 2, 3]
        for partition, leader in leaders.items():
            value = b"for %d" % leader
            simulation.run_until(clients[leader - 1].produce("orders", partition, batch(value)))
            assert values(simulation.run_until(clients[leader - 1].read_all("orders", partition))) == [value]
            assert host.disk.exists(f"/data/broker-{leader}/orders-{partition}/00000000000000000000.log")
            with pytest.raises(KafkaError) as refused:
                simulation.run_until(clients[leader % 3].produce("orders", partition, batch(value)))
            assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        health = Agent(host.reactor).request(b"GET", b"http://127.0.0.1:8080/health/ready")
        assert simulation.run_until(health).code == 200
        for client in clients:
            simulation.run_until(client.close())
        simulation.run_until(machine.program.stop())
        simulation.run(1)
        assert host.reactor.getDelayedCalls() == []
        assert simulation.failures == []

    def test_one_of_them_killed(self) -> None:
        """When one broker is killed, the others continue; its records are back after its restart."""
        cluster = SimulatedCluster(seed=2, brokers=3)
        cluster.start()
        client = cluster.client(broker=1)
        cluster.run_until(client.create_topic("orders", 3))
        leaders = _leaders(cluster.run_until(client.metadata()), "orders")
        clients = {number: cluster.client(broker=number) for number in cluster.brokers}
        for partition, leader in leaders.items():
            cluster.run_until(clients[leader].produce("orders", partition, batch(b"before")))
        cluster.brokers[2].kill()
        for partition, leader in leaders.items():
            if leader != 2:
                cluster.run_until(clients[leader].produce("orders", partition, batch(b"meanwhile")))
        cluster.run_until(cluster.brokers[2].start())
        for partition, leader in leaders.items():
            retry_until_success(cluster, lambda p=partition, c=clients[leader]: c.produce("orders", p, batch(b"after")))
            records = cluster.run_until(clients[leader].read_all("orders", partition))
            expected = [b"before", b"after"] if leader == 2 else [b"before", b"meanwhile", b"after"]
            assert values(records) == expected


class TestZooKeeper:
    def test_session_lost(self, cluster: SimulatedCluster) -> None:
        """A broker that was disconnected for longer than its session registers and is elected controller again."""
        broker = cluster.brokers[1].program
        client = cluster.client()
        cluster.run_until(client.create_topic("orders"))
        broker_epoch, term = broker.fence.broker_epoch, broker.controller.context
        assert term is not None
        watcher = operator(cluster)
        cluster.simulation.network.cut("broker-1", "coordinator")
        cluster.run(40)
        with pytest.raises(NoNode):
            cluster.run_until(watcher.get_data(znodes.broker_path(1)))
        cluster.simulation.network.heal()
        cluster.run_until(lambda: broker.controller.context not in (None, term))
        assert broker.fence.broker_epoch > broker_epoch
        assert broker.controller.context is not None
        assert broker.controller.context.controller_epoch == term.controller_epoch + 1
        cluster.run(5)
        _, stat = cluster.run_until(watcher.get_data(znodes.broker_path(1)))
        assert stat.czxid == broker.fence.broker_epoch
        assert cluster.run_until(client.produce("orders", 0, batch(b"again"))) == 0
        cluster.run_until(client.create_topic("made-after"))
        cluster.stop()

    def test_connection_lost_during_registration(self, cluster: SimulatedCluster) -> None:
        """If the connection is lost during registration, the session survives, and only the registration is retried."""
        broker = cluster.brokers[1].program
        before, session = broker.fence.broker_epoch, broker.client.session_id
        cluster.simulation.network.cut("broker-1", "coordinator")
        cluster.run(40)
        cluster.simulation.network.heal()
        cluster.run_until(lambda: broker.client.session_id not in (0, session))
        assert broker.fence.broker_epoch == before
        cluster.simulation.network.drop_connections("broker-1", "coordinator")
        cluster.run(30)
        assert broker.fence.broker_epoch > before
        assert broker.controller.active
        cluster.stop()

    @pytest.mark.parametrize("fault", ["deleted", "overwritten"])
    def test_controller_removed_by_an_operator(self, cluster: SimulatedCluster, fault: str) -> None:
        """If an operator deletes or overwrites /controller, a working controller is elected."""
        broker = cluster.brokers[1].program
        term = broker.controller.context
        assert term is not None
        watcher = operator(cluster)
        if fault == "deleted":
            cluster.run_until(watcher.delete(znodes.CONTROLLER))
        else:
            cluster.run_until(watcher.set_data(znodes.CONTROLLER, documents.encode_controller(7, 0)))
        cluster.run_until(lambda: broker.controller.context not in (None, term))
        assert broker.controller.context is not None
        assert broker.controller.context.controller_epoch == term.controller_epoch + 1
        client = cluster.client()
        cluster.run_until(client.create_topic("made-after"))
        assert cluster.run_until(client.produce("made-after", 0, batch(b"first"))) == 0
        cluster.stop()

    @pytest.mark.parametrize("crash", ["kill", "power_loss"])
    def test_coordinator_crashes(self, cluster: SimulatedCluster, crash: str) -> None:
        """If the coordinator restarts within the session timeout, nothing is lost, and brokers keep their epochs."""
        broker = cluster.brokers[1].program
        client = cluster.client()
        cluster.run_until(client.create_topic("orders"))
        before = broker.fence.broker_epoch, broker.controller.election.controller_id
        getattr(cluster.zookeeper, crash)()
        assert cluster.run_until(client.produce("orders", 0, batch(b"meanwhile"))) == 0
        cluster.run(3)
        cluster.run_until(cluster.zookeeper.start())
        cluster.run(30)
        assert (broker.fence.broker_epoch, broker.controller.election.controller_id) == before
        assert broker.controller.active
        cluster.run_until(client.create_topic("made-after"))
        cluster.stop()


def _leaders(metadata: dict[str, Any], topic: str) -> dict[int, int]:
    rows = next(row for row in metadata["topics"] if row["name"] == topic)["partitions"]
    return {row["partition_index"]: row["leader_id"] for row in rows}
