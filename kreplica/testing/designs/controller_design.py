"""A cluster with the third design: the product's controller, one per broker, with light brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, cast

from twisted.internet.defer import Deferred

from kreplica.cluster import documents, znodes
from kreplica.controller.controller import Controller
from kreplica.controller.dependencies import Client, Connect, ControllerConfig, ControllerDependencies
from kreplica.controller.event_types import ShutdownRequested
from kreplica.model import BrokerRegistration, Endpoint, LeaderAndIsr
from kreplica.runtime import Runtime
from kreplica.testing.designs.bench_cluster import BenchCluster
from kreplica.testing.designs.clients import DeferredClient
from kreplica.testing.designs.commanded_broker import CommandedBroker
from kreplica.testing.designs.layout import Partition
from kreplica.testing.designs.light_channel import LightChannel, LightNetwork
from kreplica.testing.simulator.network import Network
from kreplica.testing.simulator.reactor import SimulatedReactor
from kreplica.testing.simulator.scheduler import Process

LISTENER = "PLAINTEXT"
SHUTDOWN_BYTES = 30 + 20
"""Bytes of ControlledShutdown and its response."""

_SINCE_FIRST_START = 0


class ControllerDesign:
    """Cluster of controllers; implements ``bench_cluster.Design``."""

    def __init__(self, cluster: BenchCluster) -> None:
        self.controllers: dict[int, Controller] = {}
        self._cluster = cluster
        self._clients: dict[int, DeferredClient] = {}
        self._commanded: dict[int, CommandedBroker] = {}
        self._network = LightNetwork(cluster.scheduler, cluster.rtt_s, cluster.counts, self._commanded)
        self._unused_network = Network(cluster.scheduler, Random(1))
        self._administrator = DeferredClient(cluster.zookeeper, Process("administrator"))

    # --- znodes ------------------------------------------------------------------------------------------------------

    def populate(self) -> None:
        zookeeper, layout = self._cluster.zookeeper, self._cluster.layout
        for path in znodes.PERSISTENT_PATHS:
            zookeeper.put(path)
        for topic, partitions in layout.topics.items():
            zookeeper.put(znodes.topic_path(topic), documents.encode_topic(layout.assignment(topic)))
            zookeeper.put(znodes.partitions_path(topic))
            for partition in partitions:
                state = LeaderAndIsr(partition.replicas[0], 0, partition.replicas, 0)
                path = znodes.partition_state_path(topic, partition.number)
                zookeeper.put(path, documents.encode_partition_state(state))

    # --- brokers -----------------------------------------------------------------------------------------------------

    def start_broker(self, broker_id: int) -> None:
        cluster = self._cluster
        process = cluster.brokers[broker_id].start()
        client = DeferredClient(cluster.zookeeper, process, one_by_one=cluster.one_by_one)
        failures: list[Any] = []
        reactor = SimulatedReactor(cluster.scheduler, self._unused_network, process, "localhost", failures.append)
        runtime = Runtime(
            reactor=reactor,
            disk=cast(Any, None),
            offload=cast(Any, None),
            random=Random(broker_id),
            wall_clock_ms=lambda: int(cluster.scheduler.now_s * 1000),
            is_simulated=True,
        )
        config = ControllerConfig(broker_id, LISTENER, lambda topic: False, rebalance=False)
        connect = cast(Connect, partial(LightChannel, self._network, process, reactor))
        dependencies = ControllerDependencies.real(runtime, cast(Client, client), config)
        controller = Controller(
            ControllerDependencies(
                runtime, dependencies.client, config, dependencies.now_s, dependencies.long_loop, connect
            )
        )
        self.controllers[broker_id] = controller
        self._clients[broker_id] = client
        broker = cluster.brokers[broker_id]
        self._commanded[broker_id] = broker.listener = CommandedBroker(broker, client, cluster.layout, reactor)
        self._register(broker_id)
        controller.start()

    def _register(self, broker_id: int) -> None:
        endpoint = Endpoint(LISTENER, "127.0.0.1", 9092)
        registration = BrokerRegistration(broker_id, (endpoint,), intact_since=_SINCE_FIRST_START)
        data = documents.encode_broker(registration)
        _require(self._clients[broker_id].create(znodes.broker_path(broker_id), data, ephemeral=True))

    def kill_broker(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].kill()
        self._clients.pop(broker_id).close()
        del self.controllers[broker_id], self._commanded[broker_id]

    def shut_down_broker(self, broker_id: int) -> None:
        """Request a controlled shutdown from the controller, then close the session, as the product's brokers do."""
        cluster = self._cluster
        active = next((controller for controller in self.controllers.values() if controller.active), None)
        if active is None:
            self.kill_broker(broker_id)
            return
        cluster.counts.rpcs += 1
        cluster.counts.rpc_bytes += SHUTDOWN_BYTES

        epoch = cluster.zookeeper.tree.nodes[znodes.broker_path(broker_id)].czxid

        def on_response(_: object) -> None:
            cluster.scheduler.post(
                cluster.brokers[broker_id].process, cluster.rtt_s / 2, self.kill_broker, broker_id
            )

        def arrive() -> None:
            _require(active.submit(ShutdownRequested(broker_id, epoch)).addCallback(on_response))

        cluster.scheduler.post(cluster.brokers[broker_id].process, cluster.rtt_s / 2, arrive)

    def expire_session(self, broker_id: int) -> None:
        """Expire the session; the broker registers again and, unlike the product, forgets its roles."""
        cluster = self._cluster
        client = self._clients[broker_id]
        client.end()
        cluster.scheduler.post(cluster.brokers[broker_id].process, cluster.rtt_s / 2, self._session_lost, broker_id)

    def _session_lost(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].forget_roles()
        self._clients[broker_id].replace_session()
        self._register(broker_id)
        self.controllers[broker_id].stand_for_election()

    # --- administrator -----------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: Sequence[Partition]) -> None:
        data = documents.encode_topic(self._cluster.layout.assignment(topic))
        _require(self._administrator.create(znodes.topic_path(topic), data))

    def delete_topic(self, topic: str, partitions: Sequence[Partition]) -> None:
        _require(self._administrator.create(znodes.delete_topic_path(topic), b""))

    def elect_preferred(self) -> None:
        """Request elections of all partitions, in as many znodes as the size limit requires, one after another."""
        self._elect(self._cluster.layout.all())

    def _elect(self, partitions: list[Partition]) -> None:
        batch, remaining = partitions[:PREFERRED_AT_ONCE], partitions[PREFERRED_AT_ONCE:]
        if not batch:
            return
        data = documents.encode_partitions(partition.key for partition in batch)
        _require(self._administrator.create(znodes.PREFERRED_REPLICA_ELECTION, data))
        self._when_deleted(znodes.PREFERRED_REPLICA_ELECTION, lambda: self._elect(remaining))

    def _when_deleted(self, path: str, then: Any) -> None:
        def changed(_: object) -> None:
            if path in self._cluster.zookeeper.tree.nodes:
                self._when_deleted(path, then)
            else:
                then()

        _require(self._administrator.exists(path, changed))

    def reassign(self, targets: Mapping[Partition, tuple[int, ...]]) -> None:
        data = documents.encode_reassignments({partition.key: replicas for partition, replicas in targets.items()})
        _require(self._administrator.create(znodes.REASSIGN_PARTITIONS, data))


PREFERRED_AT_ONCE = 10_000
"""Maximum number of partitions in one request, so that its znode stays below 1 MB."""


def _require(deferred: Deferred[Any]) -> None:
    """End the run if an operation that must succeed fails."""

    def fail(failure: Any) -> None:
        raise RuntimeError(f"an operation of the simulated cluster failed: {failure.value}") from failure.value

    deferred.addErrback(fail)


