"""Validates requests that create, change or delete topics, and writes their znodes, to which the controller reacts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError

from kreplica.cluster import documents, znodes
from kreplica.cluster.new_topics import NewTopic
from kreplica.cluster.placement import BrokerPlace, failure_domains, place
from kreplica.cluster.topic_names import INTERNAL_TOPICS, check_collision, check_topic_name
from kreplica.cluster.uuids import random_uuid
from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership.zookeeper_errors import translate_errors
from kreplica.model import TopicAssignment
from kreplica.runtime import Runtime
from kreplica.runtime.gather import gather
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.zookeeper import (
    BadVersion,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    Stat,
    ZooKeeperClient,
)

NEW_PARTITIONS_MAX = 10_000
"""Maximum number of new partitions per request, as in KRaft, because larger requests would block other work."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Defaults of new topics: ``num.partitions`` and ``default.replication.factor``."""

    partitions: int
    replication_factor: int


class Place(Protocol):
    """Chooses the brokers of new replicas, like ``cluster.placement.place`` but by topic; plugins can replace it."""

    def __call__(
        self,
        topic: str,
        brokers: Sequence[BrokerPlace],
        partitions: int,
        replication_factor: int,
        *,
        start_index: int,
        shift: int,
        first_partition: int = 0,
    ) -> dict[int, tuple[int, ...]]: ...


def place_evenly(
    topic: str,
    brokers: Sequence[BrokerPlace],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Spread replicas over racks and brokers, independently of the topic."""
    return place(
        brokers, partitions, replication_factor, start_index=start_index, shift=shift, first_partition=first_partition
    )


class TopicAdmin:
    """Validates requests and writes znodes; decisions are left to the controller.

    :param check_configs: rejects unknown or malformed topic settings.
    :param place: chooses the brokers of new replicas.
    :param cordoned: returns the brokers that get no new replicas.
    """

    def __init__(
        self,
        runtime: Runtime,
        client: ZooKeeperClient,
        metadata: MetadataCache,
        defaults: Callable[[], TopicDefaults],
        check_configs: Callable[[Mapping[str, str]], None],
        place: Place = place_evenly,
        cordoned: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._reactor = runtime.reactor
        self._random = runtime.random
        self._client = client
        self._metadata = metadata
        self._defaults = defaults
        self._check_configs = check_configs
        self._cordoned = cordoned
        self._place_replicas = place

    # --- creation ----------------------------------------------------------------------------------------------------

    def plan(self, topic: NewTopic) -> TopicAssignment:
        """Return the assignment of a new topic; writes nothing.

        :raise KafkaError: the name, the counts, the assignment or the settings are invalid.
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
        """Write the znodes of a topic: settings and assignment in one multi.

        :param planned: the result of ``plan`` if the caller has it.
        :raise KafkaError: the errors of ``plan``; TOPIC_ALREADY_EXISTS after a concurrent creation.
        """
        assignment, operations = await self.creation(topic, planned)
        try:
            await translate_errors(self._client.multi(operations))
        except MultiFailed as failed:
            if isinstance(failed.error, (NodeExists, BadVersion)):
                raise _exists(topic.name) from failed
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failed)) from failed
        return assignment

    async def creation(
        self, topic: NewTopic, planned: TopicAssignment | None = None
    ) -> tuple[TopicAssignment, Sequence[Operation]]:
        """Return the operations that create a topic in one multi; writes nothing.

        :raise KafkaError: the errors of ``plan``.
        """
        assignment = planned or self.plan(topic)
        config_path = znodes.config_path("topics", topic.name)
        # The controller removes the deletion request last; until then the name is taken.
        deletion, leftover = await gather(
            [self._stat(znodes.delete_topic_path(topic.name)), self._stat(config_path)]
        )
        if deletion is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' is being deleted.")
        # Replace settings that an incomplete deletion left behind.
        data = documents.encode_config(topic.configs or {})
        config: list[Operation] = []
        if leftover is not None:
            config = [SetData(config_path, data, leftover.version)]
        elif topic.configs:
            config = [Create(config_path, data)]
        return assignment, [*config, Create(znodes.topic_path(topic.name), documents.encode_topic(assignment))]

    async def _stat(self, path: str) -> Stat | None:
        return await translate_errors(self._client.exists(path))

    def _place(self, topic: NewTopic) -> dict[int, tuple[int, ...]]:
        defaults = self._defaults()
        count = defaults.partitions if topic.partitions is None else topic.partitions
        factor = defaults.replication_factor if topic.replication_factor is None else topic.replication_factor
        if count <= 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{count} partitions were requested; at least 1 is required")
        _check_count(count)
        if factor <= 0:
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"replication factor {factor} is not positive")
        places = self._places(topic.name, factor)
        start = self._random.randrange(max(len(places), 1))
        shift = self._random.randrange(max(len(places), 1))
        return self._place_replicas(topic.name, places, count, factor, start_index=start, shift=shift)

    def _places(self, topic: str, factor: int) -> list[BrokerPlace]:
        """Return the brokers that may get new replicas: live and not cordoned.

        The coordinators' topics may use cordoned brokers if there are too few others, because clients cannot work
        without these topics.
        """
        cordoned = self._cordoned()
        brokers = self._metadata.brokers
        domains = failure_domains(
            {number: broker.rack for number, broker in brokers.items()},
            {number: broker.endpoints.values() for number, broker in brokers.items()},
        )
        live = [BrokerPlace(number, domain) for number, domain in sorted(domains.items())]
        places = [place for place in live if place.broker_id not in cordoned]
        if len(places) < factor and len(places) < len(live):
            if topic in INTERNAL_TOPICS:
                return live
            held_back = [place.broker_id for place in live if place.broker_id in cordoned]
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{factor} replicas were requested, but of the {len(live)} live brokers, {held_back} are cordoned",
            )
        return places

    def _check_assignment(self, assignment: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        if sorted(assignment) != list(range(len(assignment))):
            raise _bad_assignment(f"partitions must be numbered from 0 without gaps, not {sorted(assignment)}")
        _check_count(len(assignment))
        self._check_replicas(assignment, factor=None)
        return dict(sorted(assignment.items()))

    def _check_replicas(self, assignment: Mapping[int, tuple[int, ...]], *, factor: int | None) -> None:
        for partition, replicas in assignment.items():
            if not replicas:
                raise _bad_assignment(f"partition {partition} has no replica")
            if len(set(replicas)) != len(replicas):
                raise _bad_assignment(f"partition {partition} names a broker twice: {list(replicas)}")
            cordoned = [replica for replica in replicas if replica in self._cordoned()]
            if cordoned:
                raise _bad_assignment(f"partition {partition} names brokers that are cordoned: {cordoned}")
            unknown = [replica for replica in replicas if replica not in self._metadata.brokers]
            if unknown:
                raise _bad_assignment(f"partition {partition} names brokers that are not live: {unknown}")
            factor = factor or len(replicas)
            if len(replicas) != factor:
                raise _bad_assignment(f"partition {partition} has {len(replicas)} replicas, but others have {factor}")

    # --- growth ------------------------------------------------------------------------------------------------------

    async def add_partitions(
        self, topic: str, count: int, assignments: Iterable[tuple[int, ...]] | None, *, dry_run: bool
    ) -> None:
        """Grow a topic to ``count`` partitions.

        :raise KafkaError: the errors of ``growth``.
        """
        _, operations = await self.growth(topic, count, assignments)
        if dry_run:
            return
        try:
            await translate_errors(self._client.multi(operations))
        except MultiFailed as error:
            text = f"the topic {topic!r} changed concurrently; retry"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error

    async def growth(
        self, topic: str, count: int, assignments: Iterable[tuple[int, ...]] | None = None
    ) -> tuple[TopicAssignment, Sequence[Operation]]:
        """Return the new assignment with ``count`` partitions and the operations that write it; writes nothing.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT;
            REASSIGNMENT_IN_PROGRESS while replicas of the topic are being moved.
        """
        path = znodes.topic_path(topic)
        try:
            data, stat = await translate_errors(self._client.get_data(path))
        except NoNode:
            raise _unknown(topic) from None
        try:
            old = documents.decode_topic(topic, data)
        except znodes.ZnodeError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        _check_not_reassigned(old)
        _check_growth(old, count)
        new = self._new_partitions(old, count, assignments)
        grown = replace(old, partitions=old.partitions | new)
        return grown, [SetData(path, documents.encode_topic(grown), stat.version)]

    def _new_partitions(
        self, old: TopicAssignment, count: int, assignments: Iterable[tuple[int, ...]] | None
    ) -> dict[int, tuple[int, ...]]:
        old_count = len(old.partitions)
        topic, factor = old.topic, len(old.partitions[0])
        if assignments is None:
            places = self._places(old.topic, factor)
            start = next((i for i, p in enumerate(places) if p.broker_id == old.partitions[0][0]), 0)
            return self._place_replicas(
                topic, places, count - old_count, factor, start_index=start, shift=old_count, first_partition=old_count
            )
        rows = list(assignments)
        if len(rows) != count - old_count:
            raise _bad_assignment(f"{count - old_count} partitions are added, but {len(rows)} assignments are given")
        new = {old_count + i: replicas for i, replicas in enumerate(rows)}
        self._check_replicas(new, factor=factor)
        return new

    # --- deletion ----------------------------------------------------------------------------------------------------

    async def request_deletion(self, topic: str) -> None:
        """Ask the controller to delete a topic; see ``until_deleted``.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        for request in await self.deletion(topic):
            try:
                await translate_errors(self._client.multi([request]))
            except MultiFailed as failed:
                if not isinstance(failed.error, NodeExists):
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failed)) from failed

    async def deletion(self, topic: str) -> Sequence[Operation]:
        """Return the operations that request a deletion; empty if it has already been requested.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        if await translate_errors(self._client.exists(znodes.topic_path(topic))) is None:
            raise _unknown(topic)
        request = znodes.delete_topic_path(topic)
        is_requested = await translate_errors(self._client.exists(request)) is not None
        return [] if is_requested else [Create(request)]

    async def until_deleted(self, topic: str, timeout_s: float) -> bool:
        """Wait until a topic is removed from ZooKeeper, so that its name is free; return False after a timeout."""
        # The controller removes the request last.
        removed = Deferred.fromCoroutine(self._until_gone(znodes.delete_topic_path(topic)))
        try:
            await removed.addTimeout(max(timeout_s, 0), self._reactor)  # type: ignore[arg-type]
        except DeferredTimeoutError:
            return False
        return True

    async def _until_gone(self, path: str) -> None:
        while True:
            changed: Deferred[object] = Deferred()
            try:
                await translate_errors(self._client.get_data(path, changed.callback))
            except NoNode:
                return
            await changed


def _exists(topic: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic}' already exists.")


def _unknown(topic: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")


def _bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _check_count(count: int) -> None:
    if count > NEW_PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{count} new partitions were requested; at most {NEW_PARTITIONS_MAX} can be created at a time",
        )


def _check_not_reassigned(topic: TopicAssignment) -> None:
    """Reject changes during a reassignment, because the number of replicas is about to change."""
    moving = [n for n, row in topic.removing.items() if any(r in topic.partitions.get(n, ()) for r in row)]
    if topic.adding or moving:
        text = f"A partition reassignment is in progress for the topic '{topic.topic}'."
        raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, text)


def _check_growth(old: TopicAssignment, count: int) -> None:
    old_count = len(old.partitions)
    if count == old_count:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {old_count} partitions.")
    if count < old_count:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {old_count} partitions, which is higher than the requested {count}.",
        )
    _check_count(count - old_count)
    _check_removed(old, count)


def _check_removed(topic: TopicAssignment, count: int) -> None:
    """Reject numbers of removed partitions if their replicas may still have files."""
    if topic.read_only:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"partitions of {topic.topic!r} are being removed: {sorted(topic.read_only)}"
        )
    for number in range(len(topic.partitions), count):
        removed = topic.removed.get(number)
        if removed is not None and removed.replicas:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"partition {number} was removed, and brokers {list(removed.replicas)} may still have its files",
            )
