"""``/v1/topics``: lists, creates, extends and deletes topics.

The broker that receives a request writes to ZooKeeper, and the controller reacts to the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from kreplica.admin.cluster_state.counts import CachedCounts, TopicCounts, counts_of
from kreplica.admin.cluster_state.published_metadata import (
    PublishedMetadata,
    PublishedTopic,
    is_offline,
    once_complete,
    topic_of,
)
from kreplica.admin.cluster_state.topic_znodes import TopicZnodes
from kreplica.admin.cluster_state.znode_writes import ZnodeWrites, write
from kreplica.admin.http.api import AFTER, LIMIT, Call, JsonResponse, Parameter, Route
from kreplica.admin.http.callers import topic as topic_resource
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import (
    BOOLEAN,
    BROKER_ID,
    COUNT,
    IN_TOPIC,
    NEW_PARTITIONS,
    STRING,
    TOPIC,
    listing,
    record,
    written,
)
from kreplica.admin.lists.topic_list import COLUMNS, MEMBERS, Settings, TopicList
from kreplica.admin.load.group_loads import GroupLoads
from kreplica.admin.load.topic_loads import TopicLoads
from kreplica.admin.resources.config_rows import CONFIG
from kreplica.cluster import znodes
from kreplica.cluster.new_topics import NewTopic
from kreplica.cluster.topic_names import INTERNAL_TOPICS
from kreplica.cluster.uuids import uuid_text
from kreplica.errors import ErrorCode, KafkaError
from kreplica.interfaces.authorization import Operation
from kreplica.model import TopicAssignment
from kreplica.runtime import Reactor
from kreplica.zookeeper import Operation as ZooKeeperOperation
from kreplica.zookeeper import ZooKeeperClient

CONTROLLER_SECONDS_MAX = 10.0
"""Maximum time that a response waits for the controller; it then shows the current state."""

ASSIGNMENT = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 10_000,
    "patternProperties": {"^(0|[1-9][0-9]{0,4})$": listing(BROKER_ID, minItems=1, maxItems=1000)},
    "additionalProperties": False,
    "description": "The brokers of each partition, preferred leader first.",
    "examples": [{"0": [1, 2], "1": [2, 1]}],
}

NEW_TOPIC = record(
    {
        "name": TOPIC,
        "partitions": {**NEW_PARTITIONS, "description": "The broker's num.partitions if absent."},
        "replication_factor": {
            "type": "integer",
            "minimum": 1,
            "maximum": 1000,
            "description": "The broker's default.replication.factor if absent.",
        },
        "assignment": ASSIGNMENT,
        "configs": {
            "type": "object",
            "additionalProperties": {"type": ["string", "integer", "number", "boolean"]},
            "maxProperties": 100,
            "examples": [{"cleanup.policy": "compact", "retention.ms": 86400000}],
        },
    },
    title="NewTopic",
    optional=("partitions", "replication_factor", "assignment", "configs"),
    examples=[{"name": "orders", "partitions": 6, "replication_factor": 3}],
)

CREATED = written(
    {
        "name": STRING,
        "topic_id": {**STRING, "description": "A dry run returns an example: the created topic gets a different ID."},
        "partitions": COUNT,
        "replication_factor": COUNT,
        "assignment": ASSIGNMENT,
        "led": {**BOOLEAN, "description": "True if every partition has a leader, so that clients can use it."},
    },
    title="TopicMade",
)

PARTITIONS_ADDED = written(
    {"name": STRING, "partitions": COUNT, "assignment": ASSIGNMENT, "led": BOOLEAN},
    title="TopicGrown",
    description="`assignment` contains only the new partitions.",
)

DELETED = written(
    {
        "name": STRING,
        "deleted": {**BOOLEAN, "description": "True if it is deleted; false while the controller deletes it."},
    },
    title="TopicDeleted",
)

UNKNOWN = {404: "The topic does not exist."}

Row = dict[str, Any]


class TopicAdmin(Protocol):
    """Validates requests for topics and returns their ZooKeeper operations, as Kafka's requests do."""

    async def creation(self, topic: NewTopic) -> tuple[TopicAssignment, Sequence[ZooKeeperOperation]]:
        """Return the operations that create a topic.

        :raise KafkaError: the name, the numbers, the assignment or the settings are invalid.
        """

    async def growth(self, topic: str, count: int) -> tuple[TopicAssignment, Sequence[ZooKeeperOperation]]:
        """Return the operations that add partitions.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, REASSIGNMENT_IN_PROGRESS.
        """

    async def deletion(self, topic: str) -> Sequence[ZooKeeperOperation]:
        """Return the operations that delete a topic.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """

    async def until_deleted(self, topic: str, timeout_s: float) -> bool:
        """Wait until a topic is deleted; return False after a timeout."""


class TopicConfigs(Protocol):
    """The settings of a topic that are stored in ZooKeeper."""

    async def rows_of_topic(self, topic: str) -> list[Row]:
        """Return all settings of a topic in the form of ``CONFIG``."""


class Topics:
    """Lists topics from the metadata and writes through ``TopicAdmin``.

    :param settings: effective settings of topics.
    :param loads: the load of topics and groups.
    :param deletion_enabled: ``delete.topic.enable``.
    """

    def __init__(
        self,
        reactor: Reactor,
        published: PublishedMetadata,
        client: ZooKeeperClient,
        admin: TopicAdmin,
        configs: TopicConfigs,
        counts: CachedCounts,
        settings: Settings,
        loads: tuple[TopicLoads, GroupLoads],
        *,
        deletion_enabled: bool = True,
    ) -> None:
        self._published = published
        self._client = client
        self._znodes = TopicZnodes(reactor, client)
        self._admin = admin
        self._configs = configs
        self._counts = counts
        self._settings = settings
        self._list = TopicList(reactor, published, self._znodes, counts, settings, *loads)
        self._deletion_enabled = deletion_enabled

    def routes(self) -> Sequence[Route]:
        """Return the routes of the list, a topic and its changes."""
        return (*self._reads(), *self._writes())

    def _reads(self) -> Sequence[Route]:
        search = Parameter("search", STRING, "Only names that contain this text, ignoring case.")
        configs = {**listing(CONFIG), "description": "Empty without DescribeConfigs permission."}
        internal = Parameter("internal", BOOLEAN, "Include internal topics.", default=True)
        return (
            Route(
                "GET",
                "/v1/topics",
                self._list.read,
                "All topics.",
                response=COLUMNS.page_schema("topics", "Topic"),
                query=(LIMIT, AFTER, search, internal, *COLUMNS.parameters()),
            ),
            Route(
                "GET",
                "/v1/topics/{topic}",
                self.one,
                "One topic, with its settings.",
                response=record({**MEMBERS, "configs": configs}, title="TopicWithConfigs"),
                query=(IN_TOPIC,),
                problems=UNKNOWN,
            ),
        )

    def _writes(self) -> Sequence[Route]:
        return (
            Route(
                "POST",
                "/v1/topics",
                self.make,
                "Create a topic.",
                response=CREATED,
                status=201,
                body=NEW_TOPIC,
                znodes=(znodes.topic_path("{name}"), znodes.TOPIC_CONFIGS + "/{name}"),
                problems={409: "The topic already exists."},
                other_responses={200: ("Dry run: nothing was written.", CREATED)},
            ),
            Route(
                "PATCH",
                "/v1/topics/{topic}",
                self.grow,
                "Add partitions to a topic.",
                response=PARTITIONS_ADDED,
                body=record({"partitions": {**NEW_PARTITIONS, "description": "The new number of partitions."}}),
                query=(IN_TOPIC,),
                znodes=(znodes.topic_path("{topic}"),),
                problems={**UNKNOWN, 409: "The topic is being reassigned or was changed concurrently."},
            ),
            Route(
                "DELETE",
                "/v1/topics/{topic}",
                self.delete,
                "Delete a topic and its records.",
                response=DELETED,
                query=(IN_TOPIC,),
                znodes=(znodes.delete_topic_path("{topic}"),),
                problems={**UNKNOWN, 403: "delete.topic.enable is false.", 409: "The deletion was already requested."},
            ),
        )

    # --- reads -------------------------------------------------------------------------------------------------------

    async def one(self, call: Call) -> JsonResponse:
        """``GET /v1/topics/{topic}``."""
        topic = topic_of(await once_complete(self._published), call.path["topic"])
        counts = (await self._counts.current()).topics.get(topic.name)
        if counts is None:
            counts = counts_of(topic, self._settings.min_insync_replicas(topic.name))
        deleting = await self._znodes.deleting()
        row = _row(topic, counts, None if deleting is None else topic.name in deleting)
        configs: Sequence[Row] = ()
        if call.caller.may(Operation.DESCRIBE_CONFIGS, topic_resource(topic.name)):
            configs = await self._configs.rows_of_topic(topic.name)
        return JsonResponse({**row, "configs": configs})

    # --- writes ------------------------------------------------------------------------------------------------------

    async def make(self, call: Call) -> JsonResponse:
        """``POST /v1/topics``."""
        await once_complete(self._published)
        created, operations = await self._admin.creation(_new_topic(call.body))
        znode_rows = await write(self._client, ZnodeWrites(operations), dry_run=call.dry_run)
        led = not call.dry_run and await self._is_led(created)
        document = {
            "name": created.topic,
            "topic_id": uuid_text(created.topic_id),
            "partitions": len(created.partitions),
            "replication_factor": len(created.partitions[0]),
            "assignment": _assignment(created.partitions),
            "led": led,
            "dry_run": call.dry_run,
            "znodes": znode_rows,
        }
        if call.dry_run:
            return JsonResponse(document)
        return JsonResponse(document, status=201, location=f"/v1/topics/{created.topic}")

    async def grow(self, call: Call) -> JsonResponse:
        """``PATCH /v1/topics/{topic}``."""
        name, count = call.path["topic"], call.body["partitions"]
        before = len(topic_of(await once_complete(self._published), name).partitions)
        extended, operations = await self._admin.growth(name, count)
        znode_rows = await write(self._client, ZnodeWrites(operations), dry_run=call.dry_run)
        new = {number: replicas for number, replicas in extended.partitions.items() if number >= before}
        return JsonResponse(
            {
                "name": name,
                "partitions": count,
                "assignment": _assignment(new),
                "led": not call.dry_run and await self._is_led(extended),
                "dry_run": call.dry_run,
                "znodes": znode_rows,
            }
        )

    async def _is_led(self, assignment: TopicAssignment) -> bool:
        def led() -> bool:
            topic = self._published.topics.get(assignment.topic)
            partitions = topic.partitions if topic is not None and topic.topic_id == assignment.topic_id else {}
            return all(number in partitions and not is_offline(partitions[number]) for number in assignment.partitions)

        return await self._published.wait_until(led, CONTROLLER_SECONDS_MAX)

    async def delete(self, call: Call) -> JsonResponse:
        """``DELETE /v1/topics/{topic}``."""
        name = call.path["topic"]
        if not self._deletion_enabled:
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
        operations = await self._admin.deletion(name)
        znode_rows = await write(self._client, ZnodeWrites(operations), dry_run=call.dry_run)
        deleted = not call.dry_run and await self._is_gone(name)
        return JsonResponse({"name": name, "deleted": deleted, "dry_run": call.dry_run, "znodes": znode_rows})

    async def _is_gone(self, name: str) -> bool:
        """Return True if the topic is removed from ZooKeeper, so that its name is free, and from the metadata."""
        if not await self._admin.until_deleted(name, CONTROLLER_SECONDS_MAX):
            return False
        return await self._published.wait_until(lambda: name not in self._published.topics, CONTROLLER_SECONDS_MAX)


def _row(topic: PublishedTopic, counts: TopicCounts, deleting: bool | None) -> Row:
    return {
        "name": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        **asdict(counts),
        "is_internal": topic.name in INTERNAL_TOPICS,
        "deleting": deleting,
    }


def _new_topic(body: Mapping[str, Any]) -> NewTopic:
    """Parse a request for a new topic.

    :raise Problem: 400 if it has both an assignment and a number of partitions or replicas.
    """
    assignment = body.get("assignment")
    if assignment is not None and ("partitions" in body or "replication_factor" in body):
        raise Problem(
            400,
            "INVALID_REQUEST",
            "the body has both an assignment and a number of partitions or replicas",
            what_to_do="Omit the numbers; the assignment contains them.",
        )
    return NewTopic(
        body["name"],
        body.get("partitions"),
        body.get("replication_factor"),
        assignment=None if assignment is None else {int(n): tuple(replicas) for n, replicas in assignment.items()},
        configs={name: text_of(value) for name, value in body.get("configs", {}).items()},
    )


def text_of(value: Any) -> str:
    """Return a setting's value as text, because Kafka's settings are strings; JSON's true becomes ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _assignment(partitions: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
    return {str(number): list(replicas) for number, replicas in sorted(partitions.items())}
