"""Metadata (key 3): live brokers and partition leaders; creates missing topics if auto-creation is enabled."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from twisted.internet.defer import CancelledError, Deferred

from kreplica.cluster.new_topics import NewTopic
from kreplica.cluster.topic_names import INTERNAL_TOPICS, check_topic_name, is_topic_name
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_LEADER, ZERO_UUID
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.authorization.authorized_operations import NOT_REQUESTED, AuthorizedOperations
from kreplica.server.handlers.topics.topic_admin import TopicAdmin
from kreplica.server.metadata.creation_limits import TopicCreationLimits
from kreplica.server.metadata.metadata_cache import (
    IDS_FROM,
    LiveBroker,
    MetadataCache,
    PartitionMetadata,
    TopicMetadata,
)
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices, respond_with_result
from kreplica.wire.messages import METADATA
from kreplica.wire.primitives import PrebuiltElements
from kreplica.wire.schema import MessageBuilder

Row = dict[str, Any]

BUILT_TOPICS_MAX = 20_000
"""Maximum number of cached topic rows; a full cache is cleared."""


class _BuiltTopic(NamedTuple):
    """An encoded topic row and the objects from which it was built."""

    topic: TopicMetadata
    brokers: dict[int, LiveBroker]
    data: bytes


class Metadata:
    """Handles Metadata requests, and creates topics on demand.

    :param auto_create: ``auto.create.topics.enable``.
    :param creations: limits of automatic topic creation.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        topics: TopicAdmin,
        operations: AuthorizedOperations,
        *,
        auto_create: bool,
        creations: TopicCreationLimits,
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._operations = operations
        self._auto_create = auto_create
        self._creations = creations
        self._built: dict[tuple[int, str, str, int], _BuiltTopic] = {}
        """Encoded rows by version, listener, topic and authorized operations, since many clients request all topics."""

    def __call__(self, request: Request) -> None:
        respond_in_slices(request, self._serve(request))

    def _serve(self, request: Request) -> Steps[Row | None]:
        names, rows = yield from self._requested(request)
        if self._auto_create and request.body.get("allow_auto_topic_creation", True):
            # Internal topics need their own configuration instead of the defaults.
            missing = []
            for number, name in enumerate(names, 1):
                if name not in self._metadata.topics and name not in INTERNAL_TOPICS and is_topic_name(name):
                    missing.append(name)
                if number % STEP_ROWS == 0:
                    yield
            if missing:
                respond_with_result(request, self._response_after_creating(request, names, rows, missing))
                return None
        return (yield from self._response(request, [*rows, *names]))

    def _requested(self, request: Request) -> Steps[tuple[list[str], list[Row]]]:
        """Return the requested names, and the error rows of unknown IDs."""
        topics = request.body["topics"]
        if topics is None or (request.version == 0 and not topics):
            return sorted(self._metadata.topics), []
        names: dict[str, None] = {}
        rows = []
        for number, topic in enumerate(topics, 1):
            name, topic_id = self._metadata.requested_topic(topic, request.version)
            if name is not None:
                names[name] = None
            elif request.version < IDS_FROM:
                rows.append(_error_row("", ZERO_UUID, ErrorCode.INVALID_REQUEST))
            else:
                rows.append(_error_row(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
            if number % STEP_ROWS == 0:
                yield
        return list(names), rows

    async def _response_after_creating(
        self, request: Request, names: list[str], rows: list[Row], missing: list[str]
    ) -> Row:
        """Create topics and return the response; topics beyond the limits are created when the client retries."""
        admitted = missing[: self._creations.admit(request.connection.host, len(missing))]
        running: list[Deferred[ErrorCode]] = []
        try:
            await request.in_slices(self._start_creating(admitted, running))
            errors = [await creation for creation in running]
        except CancelledError:
            for creation in running:
                creation.cancel()
                creation.addErrback(lambda _: None)
            raise
        finally:
            self._creations.finished(len(admitted))
        deferred = dict.fromkeys(missing[len(admitted) :], ErrorCode.LEADER_NOT_AVAILABLE)
        created = dict(zip(admitted, errors, strict=True))
        return await request.in_slices(self._response_with_created(request, names, rows, {**deferred, **created}))

    def _start_creating(self, names: list[str], running: list[Deferred[ErrorCode]]) -> Steps[None]:
        for name in names:
            running.append(Deferred.fromCoroutine(self._create(name)))
            yield

    def _response_with_created(
        self, request: Request, names: list[str], rows: list[Row], errors: dict[str, ErrorCode]
    ) -> Steps[Row]:
        topics: list[Row | str] = [*rows]
        for number, name in enumerate(names, 1):
            if name not in errors or name in self._metadata.topics:
                topics.append(name)
            else:
                topics.append(_error_row(name, ZERO_UUID, errors[name], self._topic_operations(request, name)))
            if number % STEP_ROWS == 0:
                yield
        return (yield from self._response(request, topics))

    async def _create(self, name: str) -> ErrorCode:
        """Create a topic with the broker's defaults; the client retries until it has leaders."""
        try:
            await self._topics.create(NewTopic(name))
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                return error.code
        return ErrorCode.LEADER_NOT_AVAILABLE

    def _response(self, request: Request, topics: list[Row | str]) -> Steps[Row]:
        """Build the response.

        :param topics: rows, or topic names, whose rows come from the cache.
        """
        build = METADATA.response.element(request.version, "topics")
        pieces: list[bytes] = []
        chunk: list[bytes] = []
        for number, topic in enumerate(topics, 1):
            if isinstance(topic, str):
                operations = self._topic_operations(request, topic)
                cached = self._cached(request, topic, operations)
                chunk.append(cached or (yield from self._build_topic(request, topic, operations, build)))
            else:
                chunk.append(build(topic))
            if number % STEP_ROWS == 0:
                pieces.append(b"".join(chunk))
                chunk.clear()
                yield
        pieces.append(b"".join(chunk))
        live = self._metadata.live_on(request.connection.listener)
        return {
            "brokers": [
                {"node_id": broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
                for broker, endpoint in live
            ],
            "cluster_id": self._metadata.cluster_id,
            "controller_id": self._metadata.controller_id,
            "topics": PrebuiltElements(len(topics), pieces),
            "throttle_time_ms": 0,
            "cluster_authorized_operations": self._operations.on_cluster(request)
            if request.body.get("include_cluster_authorized_operations")
            else NOT_REQUESTED,
        }

    def _topic_operations(self, request: Request, name: str) -> int:
        if request.body.get("include_topic_authorized_operations"):
            return self._operations.on_topic(request, name)
        return NOT_REQUESTED

    def _cached(self, request: Request, name: str, operations: int) -> bytes | None:
        """Return a cached topic row if nothing in it has changed."""
        cached = self._built.get((request.version, request.connection.listener, name, operations))
        if cached is None or cached.topic is not self._metadata.topics.get(name):
            return None
        return cached.data if cached.brokers is self._metadata.brokers else None

    def _build_topic(self, request: Request, name: str, operations: int, build: MessageBuilder) -> Steps[bytes]:
        listener, brokers = request.connection.listener, self._metadata.brokers
        topic = self._metadata.topics.get(name)
        key = (request.version, listener, name, operations)
        if topic is None:
            self._built.pop(key, None)
            return build(_unknown_topic_row(name, operations, self._metadata.is_empty))
        if len(topic.partitions) <= STEP_ROWS:
            data = build(self._topic_row(topic, self._partition_rows(topic, listener), operations))
        else:
            rows = []
            for number, partition in enumerate([partition for _, partition in sorted(topic.partitions.items())], 1):
                rows.append(self._partition_row(partition, listener))
                if number % STEP_ROWS == 0:
                    yield
            build_large = METADATA.response.sliced_builder(request.version, "topics")
            data = b"".join((yield from build_large(self._topic_row(topic, rows, operations), b"")))
        if len(self._built) >= BUILT_TOPICS_MAX:
            self._built.clear()
        self._built[key] = _BuiltTopic(topic, brokers, data)
        return data

    @staticmethod
    def _topic_row(topic: TopicMetadata, partitions: list[Row], operations: int) -> Row:
        return {
            "error_code": 0,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.name in INTERNAL_TOPICS,
            "partitions": partitions,
            "topic_authorized_operations": operations,
        }

    def _partition_rows(self, topic: TopicMetadata, listener: str) -> list[Row]:
        return [self._partition_row(partition, listener) for _, partition in sorted(topic.partitions.items())]

    def _partition_row(self, partition: PartitionMetadata, listener: str) -> Row:
        leader = partition.leader
        error = ErrorCode.NONE
        broker = self._metadata.brokers.get(leader)
        if broker is None:
            leader, error = NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
        elif listener not in broker.endpoints:
            leader, error = NO_LEADER, ErrorCode.LISTENER_NOT_FOUND
        return {
            "error_code": int(error),
            "partition_index": partition.partition,
            "leader_id": leader,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr,
            "offline_replicas": partition.offline_replicas,
        }


def _unknown_topic_row(name: str, operations: int, has_no_metadata: bool) -> Row:
    """Return the row of an unknown topic.

    :param has_no_metadata: True if the broker has just started and has no metadata; clients would discard their
        buffered records if the error were UNKNOWN_TOPIC_OR_PARTITION.
    """
    try:
        check_topic_name(name)
    except KafkaError as error:
        return _error_row(name, ZERO_UUID, error.code, operations)
    code = ErrorCode.LEADER_NOT_AVAILABLE if has_no_metadata else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _error_row(name, ZERO_UUID, code, operations)


def _error_row(name: str | None, topic_id: UUID, error: ErrorCode, operations: int = NOT_REQUESTED) -> Row:
    return {
        "error_code": int(error),
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topic_authorized_operations": operations,
    }
