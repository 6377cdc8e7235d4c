"""``/v1/configs``: the settings of topics and brokers that can change while the cluster runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kreplica.admin.cluster_state.published import BrokerConnections, Published, once_complete, topic_of
from kreplica.admin.cluster_state.znode_writes import ZnodeWrites, write
from kreplica.admin.http.api import Answer, Call, Parameter, Route
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import IN_TOPIC, listing, record, written
from kreplica.admin.resources.config_rows import CONFIG, is_secret, of_all_brokers, of_broker, of_topic
from kreplica.admin.resources.topics import text_of
from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode, KafkaError
from kreplica.settings import AlterOperation, ConfigRow, OperationType
from kreplica.wire.messages import DESCRIBE_CONFIGS
from kreplica.zookeeper import NoNode, Operation, ZooKeeperClient

ASKED_SECONDS_MAX = 5.0
TRIES_MAX = 3
"""How often a change is worked out anew where somebody else changed the same settings and nobody said If-Match."""

BROKER_RESOURCE = 4
DEFAULT = "default"
TOPICS, BROKERS = "topics", "brokers"

IN_BROKERS = Parameter(
    "broker",
    {"type": "string", "pattern": f"^([0-9]{{1,9}}|{DEFAULT})$"},
    f"The broker's id, or `{DEFAULT}` for what is set for all brokers together.",
)

VALUE = {"type": ["string", "integer", "number", "boolean"]}

CHANGE = record(
    {
        "set": {
            "type": "object",
            "additionalProperties": VALUE,
            "maxProperties": 200,
            "description": "Values by name.",
            "examples": [{"retention.ms": 86400000}],
        },
        "remove": {
            **listing({"type": "string"}, maxItems=200),
            "description": "Names that go back to their default.",
        },
    },
    title="ConfigChange",
    optional=("set", "remove"),
    minProperties=1,
)

CONFIGS = record({"configs": listing(CONFIG)}, title="Configs")

CHANGED = written(
    {"configs": {**listing(CONFIG), "description": "Those that were named, as they are then."}},
    title="ConfigsChanged",
)

Row = dict[str, Any]


class Alteration(Protocol):
    """:ivar settings: all that the entity has then.

    :ivar version: of the znode before; None where there is none.
    """

    @property
    def settings(self) -> Mapping[str, str]: ...

    @property
    def version(self) -> int | None: ...

    @property
    def operations(self) -> Sequence[Operation]: ...


class Settings(Protocol):
    """The checks of changes, and what they come to in ZooKeeper; Kafka's requests have the same."""

    async def alteration(self, entity_type: str, entity: str, operations: Sequence[AlterOperation]) -> Alteration:
        """:raise KafkaError: whatever is wrong with an operation, or with the settings that follow."""

    def describe_new_topic(self, overrides: Mapping[str, str]) -> Sequence[ConfigRow]:
        """The settings of a topic with these of its own."""


class Configs:
    """Of any topic or broker: what is set is read from ZooKeeper, what a broker's file says is asked of that broker."""

    def __init__(
        self, published: Published, client: ZooKeeperClient, settings: Settings, connections: BrokerConnections
    ) -> None:
        self._published = published
        self._client = client
        self._settings = settings
        self._connections = connections

    def routes(self) -> Sequence[Route]:
        """Of topics, and of brokers."""
        topic, broker = znodes.TOPIC_CONFIGS + "/{topic}", "/config/brokers/{broker}"
        return (
            *self._pair("/v1/configs/topics/{topic}", "topic", IN_TOPIC, topic, "There is no such topic."),
            *self._pair("/v1/configs/brokers/{broker}", "broker", IN_BROKERS, broker, "There is no such broker."),
        )

    def _pair(self, path: str, what: str, parameter: Parameter, znode: str, unknown: str) -> Sequence[Route]:
        return (
            Route(
                "GET",
                path,
                self.read,
                f"The settings of a {what}.",
                answer=CONFIGS,
                query=(parameter,),
                problems={404: unknown},
            ),
            Route(
                "PATCH",
                path,
                self.change,
                f"Change settings of a {what}.",
                answer=CHANGED,
                body=CHANGE,
                query=(parameter,),
                znodes=(znode, f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}"),
                problems={
                    404: unknown,
                    409: "Others change the same settings all the time.",
                    412: "They are not any more what If-Match says.",
                },
            ),
        )

    # --- reads -------------------------------------------------------------------------------------------------------

    async def read(self, call: Call) -> Answer:
        """``GET``."""
        kind, entity = await self._entity(call)
        version, own = await self._own(kind, entity)
        rows = await self._rows(kind, entity, own)
        return Answer({"configs": rows}, etag=_etag(version, rows))

    async def rows_of_topic(self, topic: str) -> list[Row]:
        """Every setting of a topic, as ``CONFIG`` has it."""
        _, own = await self._own(TOPICS, topic)
        return await self._rows(TOPICS, topic, own)

    async def _entity(self, call: Call) -> tuple[str, str]:
        """:raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION."""
        if "topic" in call.path:
            return TOPICS, topic_of(await once_complete(self._published), call.path["topic"]).name
        broker = call.path["broker"]
        return BROKERS, znodes.DEFAULT_ENTITY if broker == DEFAULT else str(int(broker))

    async def _own(self, kind: str, entity: str) -> tuple[int | None, Mapping[str, str]]:
        """The version of the entity's znode, and its settings; None where there is no such znode."""
        path = znodes.config_path(kind, entity)
        try:
            data, stat = await self._client.get_data(path)
        except NoNode:
            return None, {}
        return stat.version, documents.decode_config(path, data)

    async def _rows(self, kind: str, entity: str, own: Mapping[str, str]) -> list[Row]:
        if kind == TOPICS:
            return of_topic(self._settings.describe_new_topic({}), own)
        if entity == znodes.DEFAULT_ENTITY:
            return of_all_brokers(own)
        return of_broker(await self._described(int(entity)), own)

    async def _described(self, broker_id: int) -> Sequence[Row]:
        """What a broker says of itself: only it knows its file."""
        if broker_id not in self._published.brokers:
            raise Problem(
                404,
                "BROKER_ID_NOT_REGISTERED",
                f"broker {broker_id} does not live, and only it knows what its file says",
                what_to_do="Start it; GET /v1/brokers lists the brokers that there are.",
            )
        resource = {"resource_type": BROKER_RESOURCE, "resource_name": str(broker_id), "configuration_keys": None}
        body = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
        answer = await self._connections.request(broker_id, DESCRIBE_CONFIGS, body, timeout_s=ASKED_SECONDS_MAX)
        (result,) = answer["results"]
        if result["error_code"]:
            raise KafkaError(ErrorCode.of(result["error_code"]), result["error_message"] or "")
        rows: Sequence[Row] = result["configs"]
        return rows

    # --- writes ------------------------------------------------------------------------------------------------------

    async def change(self, call: Call) -> Answer:
        """``PATCH``."""
        kind, entity = await self._entity(call)
        operations = _operations(call.body)
        if kind == BROKERS and entity != znodes.DEFAULT_ENTITY:
            await self._described(int(entity))  # so that a mistyped id does not make settings of nobody
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                return await self._changed(call, kind, entity, operations)
            except Problem as problem:
                if problem.status != 409 or not tries_left:
                    raise
        raise AssertionError("the last try raises or answers")

    async def _changed(
        self, call: Call, kind: str, entity: str, operations: Sequence[AlterOperation]
    ) -> Answer:
        alteration = await self._settings.alteration(kind, entity, operations)
        if call.if_match is not None and call.if_match.partition(".")[0] != _version_text(alteration.version):
            raise Problem(
                412,
                "PRECONDITION_FAILED",
                "the settings are not any more what If-Match says",
                what_to_do="Read them again, and decide anew.",
            )
        secrets = [name for name in alteration.settings if is_secret(name)]
        writes = ZnodeWrites(alteration.operations, secrets)
        shown = await write(self._client, writes, dry_run=call.dry_run, if_match=call.if_match)
        rows = await self._rows(kind, entity, alteration.settings)
        names = {operation.name for operation in operations}
        following = 0 if alteration.version is None else alteration.version + 1
        return Answer(
            {"configs": [row for row in rows if row["name"] in names], "dry_run": call.dry_run, "znodes": shown},
            etag=None if call.dry_run else _etag(following, rows),
        )


def _operations(body: Mapping[str, Any]) -> list[AlterOperation]:
    values, names = body.get("set", {}), body.get("remove", [])
    if not values and not names:
        raise Problem(400, "INVALID_REQUEST", "nothing is to be changed", what_to_do="Say what to set or to remove.")
    return [
        *(AlterOperation(name, OperationType.SET, text_of(value)) for name, value in values.items()),
        *(AlterOperation(name, OperationType.DELETE, None) for name in names),
    ]


def _etag(version: int | None, rows: Sequence[Row]) -> str:
    """Of what is answered.  A later write looks at the version alone: the rest may differ from broker to broker."""
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
    return f"{_version_text(version)}.{digest}"


def _version_text(version: int | None) -> str:
    return "none" if version is None else str(version)
