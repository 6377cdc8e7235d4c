"""Metadata (key 3): which brokers live and who leads what; topics that are missing are made where that is allowed."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from kreplica.cluster.new_topics import NewTopic
from kreplica.cluster.topic_names import INTERNAL_TOPICS, check_topic_name
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_LEADER, ZERO_UUID
from kreplica.runtime.together import together
from kreplica.server.answers import answer_from
from kreplica.server.authorized_operations import NOT_ASKED, AuthorizedOperations
from kreplica.server.metadata import IDS_FROM, LiveBroker, MetadataCache, PartitionMetadata, TopicMetadata
from kreplica.server.request import Request
from kreplica.server.topic_admin import TopicAdmin
from kreplica.wire.messages import METADATA
from kreplica.wire.primitives import Built
from kreplica.wire.schema import MessageBuilder

Row = dict[str, Any]

BUILT_TOPICS_MAX = 20_000
"""Topics' rows that are kept; beyond that all are made anew."""


class _BuiltTopic(NamedTuple):
    """A topic's row as bytes, and what it was made from."""

    topic: TopicMetadata
    brokers: dict[int, LiveBroker]
    data: bytes


class Metadata:
    """:param auto_create: ``auto.create.topics.enable``."""

    def __init__(
        self, metadata: MetadataCache, topics: TopicAdmin, operations: AuthorizedOperations, *, auto_create: bool
    ) -> None:
        self._metadata = metadata
        self._topics = topics
        self._operations = operations
        self._auto_create = auto_create
        self._built: dict[tuple[int, str, str, int], _BuiltTopic] = {}
        """Rows by version, listener, topic and authorized operations: many clients ask for all topics."""

    def __call__(self, request: Request) -> None:
        names, rows = self._asked(request)
        missing = []
        if self._auto_create and request.body.get("allow_auto_topic_creation", True):
            # Kafka's own topics have shapes of their own, which the defaults would spoil.
            missing = [n for n in names if n not in self._metadata.topics and n not in INTERNAL_TOPICS]
        if missing:
            answer_from(request, self._answer_creating(request, names, rows, missing))
        else:
            request.answer(self._answer(request, [*rows, *names]))

    def _asked(self, request: Request) -> tuple[list[str], list[Row]]:
        """The names that are asked for, and the error rows of unknown ids."""
        asked = request.body["topics"]
        if asked is None or (request.version == 0 and not asked):
            return sorted(self._metadata.topics), []
        names: dict[str, None] = {}
        rows = []
        for topic in asked:
            name, topic_id = self._metadata.asked_topic(topic, request.version)
            if name is not None:
                names[name] = None
            elif request.version < IDS_FROM:
                rows.append(_error_row("", ZERO_UUID, ErrorCode.INVALID_REQUEST))
            else:
                rows.append(_error_row(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
        return list(names), rows

    async def _answer_creating(self, request: Request, names: list[str], rows: list[Row], missing: list[str]) -> Row:
        errors = await together([self._create(name) for name in missing])
        created = dict(zip(missing, errors, strict=True))
        for name in names:
            if name in created and name not in self._metadata.topics:
                rows.append(_error_row(name, ZERO_UUID, created[name]))
        failed = created.keys() - self._metadata.topics.keys()
        return self._answer(request, [*rows, *(name for name in names if name not in failed)])

    async def _create(self, name: str) -> ErrorCode:
        """Make a topic with the broker's defaults; its leaders are not known yet, so the client asks again."""
        try:
            await self._topics.create(NewTopic(name))
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                return error.code
        return ErrorCode.LEADER_NOT_AVAILABLE

    def _answer(self, request: Request, topics: list[Row | str]) -> Row:
        """:param topics: rows, or the names of topics.  They are built here, those of names once for many answers."""
        build = METADATA.response.element(request.version, "topics")
        built = [
            self._built_topic(request, topic, build) if isinstance(topic, str) else build(topic) for topic in topics
        ]
        live = self._metadata.live_on(request.connection.listener)
        return {
            "brokers": [
                {"node_id": broker.broker_id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
                for broker, endpoint in live
            ],
            "cluster_id": self._metadata.cluster_id,
            "controller_id": self._metadata.controller_id,
            "topics": Built(len(built), b"".join(built)),
            "throttle_time_ms": 0,
            "cluster_authorized_operations": self._operations.on_cluster(request)
            if request.body.get("include_cluster_authorized_operations")
            else NOT_ASKED,
        }

    def _built_topic(self, request: Request, name: str, build: MessageBuilder) -> bytes:
        metadata, listener = self._metadata, request.connection.listener
        topic, brokers = metadata.topics.get(name), metadata.brokers
        asked = request.body.get("include_topic_authorized_operations") and topic is not None
        operations = self._operations.on_topic(request, name) if asked else NOT_ASKED
        key = (request.version, listener, name, operations)
        known = self._built.get(key)
        if known is not None and known.topic is topic and known.brokers is brokers:
            return known.data
        if topic is None:
            self._built.pop(key, None)
            return build(_unknown_topic_row(name))
        data = build(self._topic_row(topic, listener, operations))
        if len(self._built) >= BUILT_TOPICS_MAX:
            self._built.clear()
        self._built[key] = _BuiltTopic(topic, brokers, data)
        return data

    def _topic_row(self, topic: TopicMetadata, listener: str, operations: int) -> Row:
        return {
            "error_code": 0,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.name in INTERNAL_TOPICS,
            "partitions": self._partition_rows(topic, listener),
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


def _unknown_topic_row(name: str) -> Row:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return _error_row(name, ZERO_UUID, error.code)
    return _error_row(name, ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _error_row(name: str | None, topic_id: UUID, error: ErrorCode) -> Row:
    return {
        "error_code": int(error),
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topic_authorized_operations": NOT_ASKED,
    }
