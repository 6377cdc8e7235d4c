"""What administrators ask of topics, as checks and znode writes.  The controller's watches do the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError

from kreplica.cluster import documents, znodes
from kreplica.cluster.placement import BrokerPlace, place
from kreplica.cluster.topic_names import check_collision, check_topic_name
from kreplica.cluster.uuids import random_uuid
from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership.reachable import reachable
from kreplica.model import TopicAssignment
from kreplica.runtime import Runtime
from kreplica.server.metadata import MetadataCache
from kreplica.zookeeper import (
    BadVersion,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    ZooKeeperClient,
)

NEW_PARTITIONS_MAX = 10_000
"""So many partitions may be asked for at once, as in Kafka without ZooKeeper: more would hold up everybody else."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that is asked for.

    :param partitions: how many; None asks for the broker's default.
    :param replication_factor: None asks for the broker's default.
    :param assignment: replicas by partition where they are chosen by hand; the two above are None then.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Mapping[int, tuple[int, ...]] | None = None
    configs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What a topic gets where nobody says: ``num.partitions`` and ``default.replication.factor``."""

    partitions: int
    replication_factor: int


class TopicAdmin:
    """Checks and writes; it decides nothing that the controller decides.

    :param check_configs: refuses topic settings that are unknown or malformed.
    """

    def __init__(
        self,
        runtime: Runtime,
        client: ZooKeeperClient,
        metadata: MetadataCache,
        defaults: Callable[[], TopicDefaults],
        check_configs: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._reactor = runtime.reactor
        self._random = runtime.random
        self._client = client
        self._metadata = metadata
        self._defaults = defaults
        self._check_configs = check_configs

    # --- creation ----------------------------------------------------------------------------------------------------

    def plan(self, topic: NewTopic) -> TopicAssignment:
        """The whole assignment of a topic that does not exist yet; writes nothing.

        :raise KafkaError: whatever is wrong with the name, the numbers, the assignment or the settings.
        """
        check_topic_name(topic.name)
        if topic.name in self._metadata.topics:
            raise _exists(topic.name)
        check_collision(topic.name, self._metadata.topics)
        self._check_configs(topic.configs or {})
        if topic.assignment is not None:
            partitions = self._check_assignment(topic.assignment)
        else:
            partitions = self._place(topic)
        return TopicAssignment(topic.name, random_uuid(self._random), partitions)

    async def create(self, topic: NewTopic, planned: TopicAssignment | None = None) -> TopicAssignment:
        """Write a topic's znodes: settings and assignment in one multi.

        :param planned: what ``plan`` answered, where the caller has it already.
        :raise KafkaError: as ``plan``; TOPIC_ALREADY_EXISTS also where another was faster.
        """
        assignment = planned or self.plan(topic)
        config_path = znodes.config_path("topics", topic.name)
        create_topic = Create(znodes.topic_path(topic.name), documents.encode_topic(assignment))
        # Settings that a deletion half-way left behind must not come alive in a new topic.
        leftover = await reachable(self._client.exists(config_path))
        data = documents.encode_config(topic.configs or {})
        config: list[Operation] = []
        if leftover is not None:
            config = [SetData(config_path, data, leftover.version)]
        elif topic.configs:
            config = [Create(config_path, data)]
        try:
            await reachable(self._client.multi([*config, create_topic]))
        except MultiFailed as failed:
            if isinstance(failed.error, (NodeExists, BadVersion)):
                raise _exists(topic.name) from failed
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failed)) from failed
        return assignment

    def _place(self, topic: NewTopic) -> dict[int, tuple[int, ...]]:
        defaults = self._defaults()
        count = defaults.partitions if topic.partitions is None else topic.partitions
        factor = defaults.replication_factor if topic.replication_factor is None else topic.replication_factor
        if count <= 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{count} partitions were asked for; at least 1 is needed")
        _check_count(count)
        if factor <= 0:
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"a replication factor of {factor} is not above 0")
        places = self._places()
        start = self._random.randrange(max(len(places), 1))
        return place(places, count, factor, start_index=start, shift=self._random.randrange(max(len(places), 1)))

    def _places(self) -> list[BrokerPlace]:
        return [BrokerPlace(broker.broker_id, broker.rack) for _, broker in sorted(self._metadata.brokers.items())]

    def _check_assignment(self, assignment: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        if sorted(assignment) != list(range(len(assignment))):
            raise _bad_assignment(f"partitions must be numbered from 0 without a gap, not {sorted(assignment)}")
        _check_count(len(assignment))
        self._check_replicas(assignment, factor=None)
        return dict(sorted(assignment.items()))

    def _check_replicas(self, assignment: Mapping[int, tuple[int, ...]], *, factor: int | None) -> None:
        for partition, replicas in assignment.items():
            if not replicas:
                raise _bad_assignment(f"partition {partition} has no replica")
            if len(set(replicas)) != len(replicas):
                raise _bad_assignment(f"partition {partition} names a broker twice: {list(replicas)}")
            unknown = [replica for replica in replicas if replica not in self._metadata.brokers]
            if unknown:
                raise _bad_assignment(f"partition {partition} names brokers that do not live: {unknown}")
            factor = factor or len(replicas)
            if len(replicas) != factor:
                raise _bad_assignment(f"partition {partition} has {len(replicas)} replicas, others have {factor}")

    # --- growth ------------------------------------------------------------------------------------------------------

    async def add_partitions(
        self, topic: str, count: int, assignments: Iterable[tuple[int, ...]] | None, *, dry_run: bool
    ) -> None:
        """Grow a topic to ``count`` partitions.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT;
            REASSIGNMENT_IN_PROGRESS while replicas of the topic move.
        """
        path = znodes.topic_path(topic)
        try:
            data, stat = await reachable(self._client.get_data(path))
        except NoNode:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}") from None
        try:
            old = documents.decode_topic(topic, data)
        except znodes.ZnodeError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        _check_settled(old)
        known = len(old.partitions)
        if count == known:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {known} partitions.")
        if count < known:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic currently has {known} partitions, which is higher than the requested {count}.",
            )
        _check_count(count - known)
        _check_numbers(old, count)
        new = self._new_partitions(old, count, assignments)
        if dry_run:
            return
        grown = replace(old, partitions=old.partitions | new)
        try:
            await reachable(self._client.set_data(path, documents.encode_topic(grown), stat.version))
        except (BadVersion, NoNode) as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{topic} changed meanwhile: try again") from error

    def _new_partitions(
        self, old: TopicAssignment, count: int, assignments: Iterable[tuple[int, ...]] | None
    ) -> dict[int, tuple[int, ...]]:
        known = len(old.partitions)
        factor = len(old.partitions[0])
        if assignments is None:
            places = self._places()
            start = next((i for i, p in enumerate(places) if p.broker_id == old.partitions[0][0]), 0)
            return place(places, count - known, factor, start_index=start, shift=known, first_partition=known)
        rows = list(assignments)
        if len(rows) != count - known:
            raise _bad_assignment(f"{count - known} partitions are added, but {len(rows)} assignments are given")
        new = {known + i: replicas for i, replicas in enumerate(rows)}
        self._check_replicas(new, factor=factor)
        return new

    # --- deletion ----------------------------------------------------------------------------------------------------

    async def delete(self, topic: str, timeout_s: float) -> bool:
        """Have the controller delete a topic.

        :return: whether nothing of it is left in ZooKeeper, so that its name is free; False where the time was up.
        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        if await reachable(self._client.exists(znodes.topic_path(topic))) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        request = znodes.delete_topic_path(topic)
        try:
            await reachable(self._client.create(request))
        except NodeExists:
            pass  # asked for already
        # The controller removes the request last.
        gone = Deferred.fromCoroutine(self._until_gone(request))
        try:
            await gone.addTimeout(max(timeout_s, 0), self._reactor)  # type: ignore[arg-type]
        except DeferredTimeoutError:
            return False
        return True

    async def _until_gone(self, path: str) -> None:
        while True:
            changed: Deferred[object] = Deferred()
            try:
                await reachable(self._client.get_data(path, changed.callback))
            except NoNode:
                return
            await changed


def _exists(topic: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic}' already exists.")


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _check_count(count: int) -> None:
    if count > NEW_PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{count} new partitions were asked for; {NEW_PARTITIONS_MAX} can be made at a time",
        )


def _check_settled(topic: TopicAssignment) -> None:
    """Where replicas move, how many a partition has is about to change."""
    moving = [n for n, row in topic.removing.items() if any(r in topic.partitions.get(n, ()) for r in row)]
    if topic.adding or moving:
        text = f"A partition reassignment is in progress for the topic '{topic.topic}'."
        raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, text)


def _check_numbers(topic: TopicAssignment, count: int) -> None:
    """The number of a partition that was removed is free when all of its replicas are gone."""
    if topic.read_only:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"partitions of {topic.topic!r} are being removed: {sorted(topic.read_only)}"
        )
    for number in range(len(topic.partitions), count):
        gone = topic.removed.get(number)
        if gone is not None and gone.replicas:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"partition {number} was removed, and brokers {list(gone.replicas)} may still have its files",
            )
