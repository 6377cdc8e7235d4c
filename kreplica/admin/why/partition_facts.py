"""Collects facts about a partition from ZooKeeper, from its replicas and from the memory of brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kreplica.admin.cluster_state.published_metadata import BrokerConnections, PublishedMetadata
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.plans.reading import PlanReader
from kreplica.admin.plans.replica_sizes import ReplicaSizes
from kreplica.client.errors import ClientError
from kreplica.cluster import documents, znodes
from kreplica.cluster.plans.plan import Plan
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import LeaderAndIsr, TopicAssignment, TopicPartition
from kreplica.wire.messages import DESCRIBE_PRODUCERS
from kreplica.zookeeper import ZooKeeperClient, read_all

REQUEST_TIMEOUT_S = 2.0
NO_TRANSACTION = -1

STEPS_SEARCHED_MAX = 20_000
"""Maximum number of plan steps searched; ongoing moves are near the first unfinished step."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction in a partition.

    :param first_offset: its first offset; read-committed consumers cannot read beyond it.
    :param last_written_ms: by the producer's clock; -1 if unknown.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_written_ms: int


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The topic's ``min.insync.replicas`` and ``unclean.leader.election.enable``."""

    min_insync_replicas: int = 1
    unclean_allowed: bool = False


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Facts about one partition.

    :param state: None if it never had a state.
    :param written_at_ms: time of the last write of the state; 0 if there is no state.
    :param live: the registered brokers.
    :param failed: replicas on live brokers whose log directory failed.
    :param controller_id: negative if there is no controller.
    :param sizes: replica sizes in bytes, by broker.
    :param transactions: open transactions, oldest first; empty if the leader does not answer.
    :param plan: the active plan that moves the partition.
    """

    key: TopicPartition
    assignment: TopicAssignment
    rules: TopicRules
    state: LeaderAndIsr | None = None
    written_at_ms: int = 0
    live: Sequence[int] = ()
    failed: Sequence[int] = ()
    controller_id: int = -1
    is_deleting: bool = False
    sizes: Mapping[int, int] = field(default_factory=dict)
    transactions: Sequence[OpenTransaction] = ()
    plan: Plan | None = None

    @property
    def replicas(self) -> tuple[int, ...]:
        """The assigned replicas, preferred leader first."""
        return self.assignment.partitions[self.key.partition]

    @property
    def adding(self) -> tuple[int, ...]:
        return self.assignment.adding.get(self.key.partition, ())

    @property
    def removing(self) -> tuple[int, ...]:
        return self.assignment.removing.get(self.key.partition, ())

    @property
    def is_moving(self) -> bool:
        """Return True if replicas are added or removed; pending file deletions do not count."""
        return bool(self.adding) or any(broker in self.replicas for broker in self.removing)

    @property
    def online(self) -> list[int]:
        """The replicas on live brokers whose log directory works."""
        return [broker for broker in self.replicas if broker in self.live and broker not in self.failed]


class PartitionFactsRead:
    """Collects facts about partitions.

    :param rules: returns the rules that apply to a topic.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        published: PublishedMetadata,
        registrations: Registrations,
        connections: BrokerConnections,
        sizes: ReplicaSizes,
        plans: PlanReader,
        rules: Callable[[str], TopicRules],
    ) -> None:
        self._client = client
        self._published = published
        self._registrations = registrations
        self._connections = connections
        self._sizes = sizes
        self._plans = plans
        self._rules = rules

    async def read(self, key: TopicPartition) -> PartitionFacts:
        """Return the facts of a partition.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        assignment, state, written_at_ms, is_deleting = await self._from_zookeeper(key)
        live = sorted(await self._registrations.live())
        replicas = assignment.partitions[key.partition]
        return PartitionFacts(
            key,
            assignment,
            self._rules(key.topic),
            state,
            written_at_ms,
            live,
            self._failed(key, live),
            await self._controller(),
            is_deleting,
            await self._sizes_of(key, [broker for broker in replicas if broker in live]),
            await self.transactions(key, state.leader if state is not None else -1),
            await self._plan(key),
        )

    async def _from_zookeeper(self, key: TopicPartition) -> tuple[TopicAssignment, LeaderAndIsr | None, int, bool]:
        topic_path, state_path = znodes.topic_path(key.topic), znodes.partition_state_path(*key)
        paths = [topic_path, state_path, znodes.delete_topic_path(key.topic)]
        topic, stated, deleting = await read_all(self._client, paths)
        unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {key} does not exist")
        if not isinstance(topic, tuple):
            raise unknown
        assignment = documents.decode_topic(key.topic, topic[0])
        if key.partition not in assignment.partitions:
            raise unknown
        if not isinstance(stated, tuple):
            return assignment, None, 0, isinstance(deleting, tuple)
        state = documents.decode_partition_state(state_path, stated[0], stated[1].version)
        return assignment, state, stated[1].mtime_ms, isinstance(deleting, tuple)

    def _failed(self, key: TopicPartition, live: Sequence[int]) -> list[int]:
        topic = self._published.topics.get(key.topic)
        partition = topic.partitions.get(key.partition) if topic is not None else None
        return [broker for broker in partition.offline_replicas if broker in live] if partition is not None else []

    async def _controller(self) -> int:
        (found,) = await read_all(self._client, [znodes.CONTROLLER])
        return documents.decode_controller(found[0]) if isinstance(found, tuple) else -1

    async def _sizes_of(self, key: TopicPartition, brokers: Sequence[int]) -> dict[int, int]:
        found = await self._sizes.of([(key, broker) for broker in brokers])
        return {broker: size for (_, broker), size in found.items()}

    async def transactions(self, key: TopicPartition, leader: int) -> list[OpenTransaction]:
        """Return the open transactions of a partition, oldest first; empty if its leader does not answer."""
        if leader < 0:
            return []
        body = {"topics": [{"name": key.topic, "partition_indexes": [key.partition]}]}
        try:
            answer = await self._connections.request(leader, DESCRIBE_PRODUCERS, body, timeout_s=REQUEST_TIMEOUT_S)
        except ClientError:
            return []
        rows = [
            row
            for topic in answer["topics"]
            for partition in topic["partitions"]
            for row in partition["active_producers"]
            if row["current_txn_start_offset"] > NO_TRANSACTION
        ]
        found = [
            OpenTransaction(
                row["producer_id"], row["producer_epoch"], row["current_txn_start_offset"], row["last_timestamp"]
            )
            for row in rows
        ]
        return sorted(found, key=lambda each: each.first_offset)

    async def _plan(self, key: TopicPartition) -> Plan | None:
        for read in await self._plans.open_plans():
            async for row in self._plans.steps(read.plan.plan_id):
                if row.step.key == key and row.outcome.state.is_open:
                    return read.plan
                if row.number >= STEPS_SEARCHED_MAX:
                    break
        return None
