"""A cluster with the first or the second design: an agent per broker, and an administrator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kreplica.testing.designs import znode_paths as znodes
from kreplica.testing.designs.agent import Agent, Timeouts
from kreplica.testing.designs.bench_cluster import BenchCluster
from kreplica.testing.designs.clients import ONE_BY_ONE, PIPELINED, AgentClient
from kreplica.testing.designs.layout import Partition
from kreplica.testing.designs.leader_coordinated import DELETE_PARTITION, CoordinatedAgent
from kreplica.testing.simulator.scheduler import Process
from kreplica.zookeeper import Create, SetData

MULTI_MAX = 1000


class AgentDesign:
    """Cluster of agents; implements ``bench_cluster.Design``."""

    def __init__(self, cluster: BenchCluster, kind: type[Agent], timeouts: Timeouts | None = None) -> None:
        self.agents: dict[int, Agent] = {}
        self._cluster = cluster
        self._kind = kind
        self._timeouts = timeouts or Timeouts()
        self._administrator = cluster.zookeeper.open_session(Process("administrator"))

    @property
    def _has_queues(self) -> bool:
        return issubclass(self._kind, CoordinatedAgent)

    def populate(self) -> None:
        zookeeper, layout = self._cluster.zookeeper, self._cluster.layout
        for path in znodes.ROOTS:
            zookeeper.put(path)
        if self._has_queues:
            for broker_id in layout.shape.broker_ids:
                zookeeper.put(znodes.queue_path(broker_id))
        for topic, partitions in layout.topics.items():
            for operation in self._topic_znodes(topic, partitions):
                zookeeper.put(operation.path, operation.data or b"")
        for partition in layout.all():
            data = znodes.encode_ids(partition.replicas)
            zookeeper.tree.nodes[znodes.isr_path(partition.topic, partition.number)].data = data

    def _topic_znodes(self, topic: str, partitions: Sequence[Partition]) -> list[Create]:
        creates = [Create(znodes.topic_path(topic))]
        for partition in partitions:
            number = partition.number
            creates.append(Create(znodes.partition_path(topic, number)))
            creates.append(Create(znodes.replicas_path(topic, number), znodes.encode_ids(partition.replicas)))
            creates.append(Create(znodes.isr_path(topic, number)))
            if not self._has_queues:
                creates.append(Create(znodes.replica_state_path(topic, number)))
        return creates

    # --- brokers -----------------------------------------------------------------------------------------------------

    def start_broker(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].start()
        self._start_agent(broker_id)

    def _start_agent(self, broker_id: int) -> None:
        cluster = self._cluster
        broker = cluster.brokers[broker_id]
        in_flight_max = ONE_BY_ONE if cluster.one_by_one else PIPELINED
        client = AgentClient(cluster.zookeeper, broker.process, in_flight_max)
        agent = self._kind(broker, client, cluster.layout, cluster.scheduler, self._timeouts, cluster.counts)
        self.agents[broker_id] = agent
        agent.start()

    def kill_broker(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].kill()
        self.agents.pop(broker_id).close()
        self._schedule_drops(broker_id)

    shut_down_broker = kill_broker

    def _schedule_drops(self, broker_id: int) -> None:
        for agent in self.agents.values():
            self._cluster.scheduler.post(
                agent.broker.process, self._timeouts.keep_in_sync_s, self._drop_follower, agent, broker_id
            )

    def _drop_follower(self, agent: Agent, broker_id: int) -> None:
        if not self._cluster.brokers[broker_id].alive:
            agent.drop(broker_id)

    def expire_session(self, broker_id: int) -> None:
        agent = self.agents[broker_id]
        agent.close()
        self._cluster.scheduler.post(agent.broker.process, self._cluster.rtt_s / 2, self._session_lost, broker_id)

    def _session_lost(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].forget_roles()
        self._start_agent(broker_id)

    # --- administrator -----------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: Sequence[Partition]) -> None:
        self._write(self._topic_znodes(topic, partitions))

    def delete_topic(self, topic: str, partitions: Sequence[Partition]) -> None:
        if not self._has_queues:
            self._write([SetData(znodes.replicas_path(topic, partition.number), b"") for partition in partitions])
            return
        for partition in partitions:
            path = znodes.leader_path(topic, partition.number)
            self._cluster.zookeeper.get(self._administrator, path, None, partial(self._queue_deletion, partition))

    def _queue_deletion(self, partition: Partition, response: tuple[bytes, int] | None) -> None:
        """Queue the deletion of a partition for its leader."""
        leader = int(response[0]) if response else partition.replicas[0]
        data = znodes.encode_request(DELETE_PARTITION, partition.topic, partition.number, 0)
        self._cluster.counts.queued += 1
        self._write([Create(f"{znodes.queue_path(leader)}/{znodes.REQUEST_PREFIX}", data, sequence=True)])

    def elect_preferred(self) -> None:
        for agent in self.agents.values():
            agent.balance()

    def reassign(self, targets: Mapping[Partition, tuple[int, ...]]) -> None:
        creates: list[Create] = []
        for partition, replicas in targets.items():
            if not creates or creates[-1].path.rpartition("/")[0] != znodes.reassigned_path(partition.topic):
                creates.append(Create(znodes.reassigned_path(partition.topic)))
            path = znodes.reassigned_path(partition.topic, partition.number)
            creates.append(Create(path, znodes.encode_ids(replicas)))
        self._write(creates)

    def _write(self, operations: Sequence[Any]) -> None:
        for start in range(0, len(operations), MULTI_MAX):
            batch = operations[start : start + MULTI_MAX]
            self._cluster.zookeeper.multi(self._administrator, batch, _check)


def _check(result: object) -> None:
    if isinstance(result, Exception):
        raise result
