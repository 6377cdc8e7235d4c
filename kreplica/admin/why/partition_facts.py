"""Collects facts about a partition from ZooKeeper, its replicas and the published metadata."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
"""Maximum number of unfinished plan steps that are searched; moves in progress are among the first ones."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction in a partition.

    :param first_offset: read-committed consumers cannot read from this offset on.
    :param last_written_ms: timestamp of the last record, from the producer's clock; -1 if unknown.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_written_ms: int


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """The settings of a topic that restrict its leaders and writes.

    :param min_insync_replicas: ``min.insync.replicas``.
    :param unclean_allowed: ``unclean.leader.election.enable``.
    """

    min_insync_replicas: int = 1
    unclean_allowed: bool = False


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Facts about one partition.

    :param state: None if no state was written yet.
    :param written_at_ms: time of the last write of the state; 0 without a state.
    :param live: the registered brokers.
    :param cordoned: brokers that get no new replicas.
    :param failed_replicas: replicas on live brokers in a failed log directory.
    :param controller_id: negative if there is no controller.
    :param sizes: replica sizes in bytes, by broker.
    :param transactions: open transactions, oldest first; empty if the leader does not respond.
    :param plan: the active plan that moves the partition.
    """

    key: TopicPartition
    assignment: TopicAssignment
    configs: TopicConfigs
    state: LeaderAndIsr | None = None
    written_at_ms: int = 0
    live: Sequence[int] = ()
    failed_replicas: Sequence[int] = ()
    controller_id: int = -1
    is_deleting: bool = False
    sizes: Mapping[int, int] = field(default_factory=dict)
    transactions: Sequence[OpenTransaction] = ()
    plan: Plan | None = None
    cordoned: Collection[int] = ()

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
        """True if replicas are being added or removed; pending file deletions do not count."""
        return bool(self.adding) or any(broker in self.replicas for broker in self.removing)

    @property
    def online(self) -> list[int]:
        """The replicas on live brokers, except those in a failed log directory."""
        return [broker for broker in self.replicas if broker in self.live and broker not in self.failed_replicas]


class PartitionFactsReader:
    """Collects facts about partitions.

    :param configs_of: returns the effective settings of a topic.
    :param cordoned: returns the brokers that get no new replicas.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        published: PublishedMetadata,
        registrations: Registrations,
        connections: BrokerConnections,
        sizes: ReplicaSizes,
        plans: PlanReader,
        configs_of: Callable[[str], TopicConfigs],
        cordoned: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._client = client
        self._published = published
        self._registrations = registrations
        self._connections = connections
        self._sizes = sizes
        self._plans = plans
        self._configs_of = configs_of
        self._cordoned = cordoned

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
            self._configs_of(key.topic),
            state,
            written_at_ms,
            live,
            self._failed_replicas(key, live),
            await self._controller(),
            is_deleting,
            await self._sizes_of(key, [broker for broker in replicas if broker in live]),
            await self.transactions(key, state.leader if state is not None else -1),
            await self.plan_of(key),
            self._cordoned(),
        )

    async def _from_zookeeper(self, key: TopicPartition) -> tuple[TopicAssignment, LeaderAndIsr | None, int, bool]:
        topic_path, state_path = znodes.topic_path(key.topic), znodes.partition_state_path(*key)
        paths = [topic_path, state_path, znodes.delete_topic_path(key.topic)]
        topic, state_response, deleting = await read_all(self._client, paths)
        unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {key} does not exist")
        if not isinstance(topic, tuple):
            raise unknown
        assignment = documents.decode_topic(key.topic, topic[0])
        if key.partition not in assignment.partitions:
            raise unknown
        if not isinstance(state_response, tuple):
            return assignment, None, 0, isinstance(deleting, tuple)
        state = documents.decode_partition_state(state_path, state_response[0], state_response[1].version)
        return assignment, state, state_response[1].mtime_ms, isinstance(deleting, tuple)

    def _failed_replicas(self, key: TopicPartition, live: Sequence[int]) -> list[int]:
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
        """Return the open transactions of a partition, oldest first; empty if its leader does not respond."""
        if leader < 0:
            return []
        body = {"topics": [{"name": key.topic, "partition_indexes": [key.partition]}]}
        try:
            response = await self._connections.request(leader, DESCRIBE_PRODUCERS, body, timeout_s=REQUEST_TIMEOUT_S)
        except ClientError:
            return []
        rows = [
            row
            for topic in response["topics"]
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

    async def plan_of(self, key: TopicPartition) -> Plan | None:
        """Return the active plan that is moving or will move the partition; None if there is none."""
        for read in await self._plans.open_plans():
            searched = 0
            async for row in self._plans.unfinished_steps(read.plan.plan_id):
                if row.step.key == key:
                    return read.plan
                searched += 1
                if searched == STEPS_SEARCHED_MAX:
                    break
        return None
