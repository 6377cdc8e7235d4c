"""Clients of a chain: producers of the source, group members, and readers of the target."""

from __future__ import annotations

from kreplica.model import TopicPartition
from kreplica.replication import READ_COMMITTED
from kreplica.testing.clients.coordinator_client import GROUP, TRANSACTION, CoordinatorClient
from kreplica.testing.clients.group_consumer import GroupConsumer, OffsetCommitter
from kreplica.testing.clients.group_member import GroupMember, Subscription
from kreplica.testing.clients.idempotent_producer import IdempotentProducer, Load
from kreplica.testing.clients.isolation import IsolatedConsumer, visible_records
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.clients.processor import Processor
from kreplica.testing.clients.transactional_producer import TransactionalProducer, TransactionSettings
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.testing.histories.group_history import GroupHistory
from kreplica.testing.histories.record_history import History
from kreplica.testing.histories.transaction_history import TransactionHistory
from kreplica.testing.simulator.simulation import Host

SOURCE, TARGET = "source", "target"
PROCESSORS, READERS = "processors", "readers"
"""Groups."""

OPERATOR = "operator"
LATEST = -1

SESSION_TIMEOUT_MS = 3000
TRANSACTION_TIMEOUT_MS = 4000

INTERVAL_S = 1.0
RECORDS_MAX = 7
VALUE_SIZE_MAX = 60


class ChainClients:
    """Makes the clients, and keeps their histories.

    :param partitions: number of partitions of each topic.
    :ivar source: history of the source's clients; ``target``, ``groups`` likewise.
    """

    def __init__(self, cluster: SimulatedCluster, partitions: int) -> None:
        self._cluster = cluster
        self._brokers = [(f"broker-{number}", BROKER_PORT) for number in cluster.brokers]
        self.sources = [TopicPartition(SOURCE, number) for number in range(partitions)]
        self.targets = [TopicPartition(TARGET, number) for number in range(partitions)]
        self.source, self.target = History(partitions, self._now_s), TransactionHistory(partitions, self._now_s)
        self.groups = {group: GroupHistory(self._now_s) for group in (PROCESSORS, READERS)}

    def _now_s(self) -> float:
        return self._cluster.simulation.now_s

    @property
    def contradictions(self) -> list[str]:
        return [
            *self.source.contradictions,
            *self.target.contradictions,
            *(text for history in self.groups.values() for text in history.contradictions),
        ]

    def producer(self, key: TopicPartition) -> IdempotentProducer:
        """Start a producer of a source partition."""
        load = Load(SOURCE, [key.partition], -1, INTERVAL_S, RECORDS_MAX, VALUE_SIZE_MAX)
        host = self._cluster.host(SOURCE)
        producer = IdempotentProducer(host.runtime, self.leader_client(host, key), load, self.source)
        producer.start()
        return producer

    def reader(self, key: TopicPartition, *, read_committed: bool) -> IsolatedConsumer:
        """Start a reader of a target partition."""
        host = self._cluster.host(TARGET)
        client = self.leader_client(host, key)
        client.client_id = f"{'committed' if read_committed else 'all'}-{key.partition}"
        reader = IsolatedConsumer(host.reactor, client, *key, self.target, read_committed=read_committed)
        reader.start()
        return reader

    def processor(self, host: Host, settings: TransactionSettings) -> Processor:
        """Make a group member that copies records from the source to the target in transactions."""
        producer = TransactionalProducer(
            host.runtime,
            settings,
            self.coordinator_client(host, settings.transactional_id, TRANSACTION),
            lambda key: self.leader_client(host, key),
            self.target,
        )
        client = self.coordinator_client(host, PROCESSORS, GROUP)
        consumer = self._consumer(host, PROCESSORS)
        return Processor(consumer, producer, client, TARGET, self.groups[PROCESSORS], host.runtime.random)

    def committer(self, host: Host) -> OffsetCommitter:
        """Make a group member that reads the source and commits without transactions."""
        return OffsetCommitter(self._consumer(host, READERS))

    def _consumer(self, host: Host, group: str) -> GroupConsumer:
        client = self.coordinator_client(host, group, GROUP)
        subscription = Subscription(group, {SOURCE: len(self.sources)}, SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS)
        member = GroupMember(client, subscription, self.groups[group])
        return GroupConsumer(host.reactor, host.name, member, lambda key: self.leader_client(host, key), self.source)

    def coordinator_client(self, host: Host, key: str, kind: int) -> CoordinatorClient:
        return CoordinatorClient(host.reactor, self._brokers, key, kind, client_id=host.name)

    def leader_client(self, host: Host, key: TopicPartition) -> LeaderClient:
        return LeaderClient(host.reactor, self._brokers, *key, client_id=host.name)

    # --- logs ---

    def end_of(self, key: TopicPartition) -> int:
        """Return the high watermark."""
        client = self.leader_client(self._cluster.host(OPERATOR), key)
        end: int = self._cluster.run_until(client.find_offset(*key, LATEST))
        self._cluster.run_until(client.close())
        return end

    def committed_values(self, key: TopicPartition) -> list[bytes]:
        """Return the values that a new reader with ``read_committed`` receives."""
        client = self.leader_client(self._cluster.host(OPERATOR), key)
        position, end, values = 0, self.end_of(key), list[bytes]()
        while position < end:
            row = self._cluster.run_until(client.fetch_row(*key, position, isolation=READ_COMMITTED))
            records, position = visible_records(row, position)
            values += [record.value or b"" for record in records]
        self._cluster.run_until(client.close())
        return values
