"""Clients of a stage: requests to coordinators and leaders, and readers of the target topic."""

from __future__ import annotations

from kreplica.model import TopicPartition
from kreplica.testing.clients.coordinator_client import CoordinatorClient
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.testing.histories.transaction_history import TransactionHistory
from kreplica.testing.simulator.simulation import Host
from tests.support.clients.group_history import GroupHistory
from tests.support.clients.isolated_consumer import IsolatedConsumer

SOURCE, TARGET = "source", "target"
READERS = "readers"
"""ID of the group."""

OPERATOR = "operator"


class StageClients:
    """Creates the clients, and stores their histories.

    :ivar target: history of the target topic.
    :ivar group: history of the group.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._brokers = [(f"broker-{number}", BROKER_PORT) for number in cluster.brokers]
        self.target = TransactionHistory(1, lambda: cluster.simulation.now_s)
        self.group = GroupHistory(lambda: cluster.simulation.now_s)

    @property
    def contradictions(self) -> list[str]:
        return [*self.target.contradictions, *self.group.contradictions]

    def reader(self, key: TopicPartition, *, read_committed: bool) -> IsolatedConsumer:
        """Start a reader of a target partition."""
        host = self._cluster.host(TARGET)
        client = self.leader_client(host, key)
        client.client_id = f"{'committed' if read_committed else 'all'}-{key.partition}"
        reader = IsolatedConsumer(host.reactor, client, *key, self.target, read_committed=read_committed)
        reader.start()
        return reader

    def coordinator_client(self, host: Host, key: str, kind: int) -> CoordinatorClient:
        return CoordinatorClient(host.reactor, self._brokers, key, kind, client_id=host.name)

    def leader_client(self, host: Host, key: TopicPartition) -> LeaderClient:
        return LeaderClient(host.reactor, self._brokers, *key, client_id=host.name)

    def committed_values(self, key: TopicPartition) -> list[bytes]:
        """Return the values that a new reader with ``read_committed`` receives."""
        client = self.leader_client(self._cluster.host(OPERATOR), key)
        records = self._cluster.run_until(client.read_visible(*key))
        self._cluster.run_until(client.close())
        return [record.value or b"" for record in records]
