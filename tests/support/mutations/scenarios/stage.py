"""The cluster for scenarios with groups and transactions: three brokers with one role each, and no other load.

Broker 1 leads the topics that are read and written, broker 2 coordinates transactions, and broker 3 coordinates groups;
each of them follows the others.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from kreplica.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kreplica.model import TopicPartition
from kreplica.testing.anomalies import report
from kreplica.testing.clients.coordinator_client import GROUP, TRANSACTION, CoordinatorClient, RequestRejected
from kreplica.testing.clients.transactional_producer import TransactionalProducer, TransactionSettings
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.testing.cluster.state import active_replicas, is_in_sync, state_of
from kreplica.testing.storms.cluster_run import SHORT_INTERVALS
from tests.support.clients.group_member import GroupMember, Subscription
from tests.support.mutations.scenarios.stage_clients import OPERATOR, READERS, SOURCE, TARGET, StageClients

LEADER, TRANSACTIONS, GROUPS = 1, 2, 3
"""The brokers, by role."""

SOURCE_KEY, TARGET_KEY = TopicPartition(SOURCE, 0), TopicPartition(TARGET, 0)
OFFSETS_KEY, TRANSACTIONS_KEY = TopicPartition(CONSUMER_OFFSETS, 0), TopicPartition(TRANSACTION_STATE, 0)
REPLICAS = {
    SOURCE_KEY: (LEADER, TRANSACTIONS, GROUPS),
    TARGET_KEY: (LEADER, TRANSACTIONS, GROUPS),
    TRANSACTIONS_KEY: (TRANSACTIONS, LEADER, GROUPS),
    OFFSETS_KEY: (GROUPS, LEADER, TRANSACTIONS),
}
"""Leader and followers of each partition."""

SMALL = (
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
)
SAFE = {"min.insync.replicas": "2"}
SESSION_S = 6.0
TIMEOUT_MS = 60_000

SEPARATOR = b"#"
"""Separator between the value of a record and the name of its transaction."""

T = TypeVar("T")


def name(broker: int) -> str:
    return f"broker-{broker}"


class Stage:
    """The cluster, its clients and their history.

    :ivar clients: the clients, which record all responses.
    """

    def __init__(self, seed: int, overrides: Sequence[str] = ()) -> None:
        self.cluster = SimulatedCluster(seed, brokers=3, overrides=[*SHORT_INTERVALS, *SMALL, *overrides])
        self.network = self.cluster.simulation.network
        self.cluster.start()
        self.clients = StageClients(self.cluster)
        self._make_topics()
        self._readers = [self.clients.reader(TARGET_KEY, read_committed=each) for each in (True, False)]

    def _make_topics(self) -> None:
        for kind in (GROUP, TRANSACTION):
            client = self.clients.coordinator_client(self.cluster.host(OPERATOR), READERS, kind)
            self.do(client.wait_for_coordinator())
            self.do(client.close())
        admin = self.cluster.client()
        for topic in (SOURCE, TARGET):
            replicas = REPLICAS[TopicPartition(topic, 0)]
            self.do(admin.create_topic(topic, assignment=[replicas], configs=SAFE))
        for key in (OFFSETS_KEY, TRANSACTIONS_KEY):
            self.do(admin.change_settings(key.topic, SAFE))
            self.do(admin.reassign(*key, REPLICAS[key]))
            self.cluster.run_until(lambda key=key: is_in_sync(self.cluster, key))
            if self.cluster.leader_of(*key) != REPLICAS[key][0]:
                self.do(admin.elect_preferred(*key))
        self.do(admin.close())
        self.cluster.run_until(lambda: all(is_in_sync(self.cluster, key) for key in REPLICAS))
        assert [self.cluster.leader_of(*key) for key in REPLICAS] == [LEADER, LEADER, TRANSACTIONS, GROUPS]

    # --- clients -----------------------------------------------------------------------------------------------------

    def producer(
        self, transactional_id: str, host: str, *, bumps_epoch: bool = False, timeout_ms: int = TIMEOUT_MS
    ) -> TransactionalProducer:
        """Return a new producer with a transactional ID."""
        where = self.cluster.host(host)
        return TransactionalProducer(
            where.runtime,
            TransactionSettings(transactional_id, timeout_ms, bumps_epoch),
            self.clients.coordinator_client(where, transactional_id, TRANSACTION),
            lambda key: self.clients.leader_client(where, key),
            self.clients.target,
        )

    def member(self, host: str, broker: int | None = None, instance_id: str | None = None) -> GroupMember:
        """Return a member of the group, which reads the source topic.

        :param broker: the only broker that it asks for the coordinator; None for any.
        :param instance_id: instance ID of a static member.
        """
        where = self.cluster.host(host)
        broker_ids = self.cluster.brokers if broker is None else [broker]
        brokers = [(name(each), BROKER_PORT) for each in broker_ids]
        client = CoordinatorClient(where.reactor, brokers, READERS, GROUP, client_id=host)
        subscription = Subscription(READERS, {SOURCE: 1}, instance_id=instance_id)
        return GroupMember(client, subscription, self.clients.group)

    def group_client(self, host: str) -> CoordinatorClient:
        """Return a client of the group's coordinator."""
        return self.clients.coordinator_client(self.cluster.host(host), READERS, GROUP)

    def client(self, broker: int) -> WireClient:
        """Return a client of one broker."""
        return self.cluster.client(broker=broker)

    # --- actions -----------------------------------------------------------------------------------------------------

    def do(self, work: Coroutine[Deferred[Any], Any, T], timeout_s: float = 60.0) -> T:
        """Run the coroutine until it ends, and return its result."""
        done: T = self.cluster.run_until(work, timeout_s)
        return done

    def begin(self, work: Coroutine[Deferred[Any], Any, T]) -> Deferred[T]:
        """Start the coroutine."""
        return Deferred.fromCoroutine(work)

    def rejected(self, work: Coroutine[Deferred[Any], Any, object]) -> bool:
        """Run the coroutine and return True if the broker rejected the request."""
        try:
            self.do(work)
        except RequestRejected:
            return True
        return False

    def leader_epoch(self, key: TopicPartition) -> int:
        """Return the leader epoch of a partition in ZooKeeper."""
        state = state_of(self.cluster, key)
        assert state is not None
        return state.leader_epoch

    def halt(self, broker: int) -> None:
        """Kill a broker, and wait until other brokers lead its partitions."""
        self.cluster.brokers[broker].kill()
        led = [key for key, replicas in REPLICAS.items() if replicas[0] == broker]
        self.cluster.run_until(lambda: all(self.cluster.leader_of(*key) not in (broker, -1) for key in led))

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Heal all faults, and check that readers reach the end of the topic and all responses are consistent."""
        self.network.heal()
        for machine in self.cluster.brokers.values():
            if not machine.running:
                self.cluster.run_until(machine.start())
        self.cluster.run_until(lambda: all(is_in_sync(self.cluster, key) for key in REPLICAS))
        for reader in self._readers:
            try:
                self.cluster.run_until(lambda reader=reader: reader.position >= self._end())
            except TimeoutError:
                raise AssertionError(f"readers wait at {reader.position} for an undecided transaction") from None
            self.do(reader.finish())
        self._check()
        self.cluster.stop()

    def _end(self) -> int:
        replicas = active_replicas(self.cluster, TARGET_KEY)
        return next(partition.high_watermark for _, partition in replicas if partition.is_leader)

    def _check(self) -> None:
        assert not self.clients.contradictions, "; ".join(self.clients.contradictions)
        report(self.clients.target.observations).check()
        made = [value.partition(SEPARATOR)[0] for value in self.committed()]
        assert len(made) == len(set(made)), f"records were processed twice: {made}"

    def committed(self) -> list[bytes]:
        """Return the values that a new reader of committed records receives."""
        return self.clients.committed_values(TARGET_KEY)


@contextmanager
def stage(seed: int, overrides: Sequence[str] = ()) -> Iterator[Stage]:
    """Prepare a cluster, and check all invariants at the end."""
    scene = Stage(seed, overrides)
    yield scene
    scene.finish()
