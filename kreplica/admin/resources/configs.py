"""``/v1/configs``: settings of topics, brokers and client-metrics subscriptions, which can change at run time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import unquote

from kreplica.admin.cluster_state.published_metadata import (
    BrokerConnections,
    PublishedMetadata,
    once_complete,
    topic_of,
)
from kreplica.admin.cluster_state.znode_writes import ZnodeWrites, write
from kreplica.admin.http.api import Call, JsonResponse, Parameter, Route
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import IN_TOPIC, listing, record, written
from kreplica.admin.resources.config_rows import (
    CONFIG,
    is_secret,
    of_all_brokers,
    of_broker,
    of_subscription,
    of_topic,
)
from kreplica.admin.resources.topics import text_of
from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode, KafkaError
from kreplica.settings import AlterOperation, ConfigRow, OperationType
from kreplica.wire.messages import DESCRIBE_CONFIGS
from kreplica.zookeeper import Delete, NoNode, Operation, ZooKeeperClient

REQUEST_TIMEOUT_S = 5.0
ATTEMPTS_MAX = 3
"""Maximum number of attempts after concurrent changes, if the caller sent no If-Match."""

BROKER_RESOURCE = 4
DEFAULT = "default"
TOPICS, BROKERS, SUBSCRIPTIONS = "topics", "brokers", znodes.CLIENT_METRICS_TYPE

IN_BROKERS = Parameter(
    "broker",
    {"type": "string", "pattern": f"^([0-9]{{1,9}}|{DEFAULT})$"},
    f"The broker's ID, or `{DEFAULT}` for the settings of all brokers.",
)

IN_SUBSCRIPTION = Parameter(
    "subscription", {"type": "string", "minLength": 1, "maxLength": 200}, "The subscription's name."
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
            "description": "Names of settings to reset to their default.",
        },
    },
    title="ConfigChange",
    optional=("set", "remove"),
    minProperties=1,
)

CONFIGS = record({"configs": listing(CONFIG)}, title="Configs")

NAMES = record({"subscriptions": {**listing({"type": "string"}), "description": "Sorted names."}})

CHANGED = written(
    {"configs": {**listing(CONFIG), "description": "The named settings after the change."}},
    title="ConfigsChanged",
)

Row = dict[str, Any]


class Alteration(Protocol):
    """The result of a change.

    :ivar settings: all settings of the entity after the change.
    :ivar version: the version of the znode before the change; None if it did not exist.
    """

    @property
    def settings(self) -> Mapping[str, str]: ...

    @property
    def version(self) -> int | None: ...

    @property
    def operations(self) -> Sequence[Operation]: ...


class Changes(Protocol):
    """Validates changes of settings, as Kafka's requests do."""

    async def alteration(self, entity_type: str, entity: str, operations: Sequence[AlterOperation]) -> Alteration:
        """Return the result of the operations.

        :raise KafkaError: an operation or the resulting settings are invalid.
        """


class Settings(Protocol):
    """Effective settings of topics."""

    def describe_new_topic(self, overrides: Mapping[str, str]) -> Sequence[ConfigRow]:
        """Return all settings of a new topic with these overrides."""


class Configs:
    """The settings of topics, brokers and subscriptions: dynamic ones are read from ZooKeeper, static ones from the
    broker."""

    def __init__(
        self,
        published: PublishedMetadata,
        client: ZooKeeperClient,
        settings: Settings,
        changes: Changes,
        connections: BrokerConnections,
    ) -> None:
        self._published = published
        self._client = client
        self._settings = settings
        self._changes = changes
        self._connections = connections

    def routes(self) -> Sequence[Route]:
        """Return the routes of topics, brokers and subscriptions to client metrics."""
        topic, broker = znodes.TOPIC_CONFIGS + "/{topic}", "/config/brokers/{broker}"
        subscription, name = "/v1/configs/client-metrics/{subscription}", "client-metrics subscription"
        return (
            *self._pair("/v1/configs/topics/{topic}", "topic", IN_TOPIC, topic, "The topic does not exist."),
            *self._pair("/v1/configs/brokers/{broker}", "broker", IN_BROKERS, broker, "The broker does not exist."),
            Route(
                "GET",
                "/v1/configs/client-metrics",
                self.subscriptions,
                "The names of the client-metrics subscriptions (KIP-714).",
                response=NAMES,
            ),
            *self._pair(
                subscription,
                name,
                IN_SUBSCRIPTION,
                f"{znodes.CLIENT_METRICS}/{{subscription}}",
                "The subscription does not exist.",
                znodes.CLIENT_METRICS,
            ),
        )

    def _pair(
        self,
        path: str,
        what: str,
        parameter: Parameter,
        znode: str,
        unknown: str,
        notification: str = f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}",
    ) -> Sequence[Route]:
        return (
            Route(
                "GET",
                path,
                self.read,
                f"The settings of a {what}.",
                response=CONFIGS,
                query=(parameter,),
                problems={404: unknown},
            ),
            Route(
                "PATCH",
                path,
                self.change,
                f"Change settings of a {what}.",
                response=CHANGED,
                body=CHANGE,
                query=(parameter,),
                znodes=(znode, notification),
                problems={
                    404: unknown,
                    409: "The same settings were changed concurrently.",
                    412: "The settings no longer match If-Match.",
                },
            ),
        )

    # --- reads -------------------------------------------------------------------------------------------------------

    async def subscriptions(self, call: Call) -> JsonResponse:
        """``GET /v1/configs/client-metrics``."""
        names = await self._client.get_children(znodes.CLIENT_METRICS)
        return JsonResponse({"subscriptions": sorted(map(unquote, names))})

    async def read(self, call: Call) -> JsonResponse:
        """``GET`` of the settings of a topic, broker or subscription."""
        kind, entity = await self._entity(call)
        version, own_values = await self._own_settings(kind, entity)
        if kind == SUBSCRIPTIONS:
            _check_exists(entity, version)
        rows = await self._rows(kind, entity, own_values)
        return JsonResponse({"configs": rows}, etag=_etag(version, rows))

    async def rows_of_topic(self, topic: str) -> list[Row]:
        """Return all settings of a topic in the form of ``CONFIG``."""
        _, own_values = await self._own_settings(TOPICS, topic)
        return await self._rows(TOPICS, topic, own_values)

    async def _entity(self, call: Call) -> tuple[str, str]:
        """Return the type and the name of the requested entity.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        if "topic" in call.path:
            return TOPICS, topic_of(await once_complete(self._published), call.path["topic"]).name
        if "subscription" in call.path:
            return SUBSCRIPTIONS, call.path["subscription"]
        broker = call.path["broker"]
        return BROKERS, znodes.DEFAULT_ENTITY if broker == DEFAULT else str(int(broker))

    async def _own_settings(self, kind: str, entity: str) -> tuple[int | None, Mapping[str, str]]:
        """Return the version of the entity's znode and its settings; None if the znode does not exist."""
        path = znodes.config_path(kind, entity)
        try:
            data, stat = await self._client.get_data(path)
        except NoNode:
            return None, {}
        return stat.version, documents.decode_config(path, data)

    async def _rows(self, kind: str, entity: str, own: Mapping[str, str]) -> list[Row]:
        if kind == TOPICS:
            return of_topic(self._settings.describe_new_topic({}), own)
        if kind == SUBSCRIPTIONS:
            return of_subscription(own)
        if entity == znodes.DEFAULT_ENTITY:
            return of_all_brokers(own)
        return of_broker(await self._describe_broker(int(entity)), own)

    async def _describe_broker(self, broker_id: int) -> Sequence[Row]:
        """Request the settings of a broker from that broker, because only it can read its file."""
        if broker_id not in self._published.brokers:
            raise Problem(
                404,
                "BROKER_ID_NOT_REGISTERED",
                f"broker {broker_id} is not alive, and only it can read its settings file",
                what_to_do="Start the broker; GET /v1/brokers lists the known brokers.",
            )
        resource = {"resource_type": BROKER_RESOURCE, "resource_name": str(broker_id), "configuration_keys": None}
        body = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
        response = await self._connections.request(broker_id, DESCRIBE_CONFIGS, body, timeout_s=REQUEST_TIMEOUT_S)
        (result,) = response["results"]
        if result["error_code"]:
            raise KafkaError(ErrorCode.of(result["error_code"]), result["error_message"] or "")
        rows: Sequence[Row] = result["configs"]
        return rows

    # --- writes ------------------------------------------------------------------------------------------------------

    async def change(self, call: Call) -> JsonResponse:
        """``PATCH`` of the settings of a topic, broker or subscription."""
        kind, entity = await self._entity(call)
        operations = _operations(call.body)
        if kind == BROKERS and entity != znodes.DEFAULT_ENTITY:
            # Rejects a mistyped ID, which would create settings of a missing broker.
            await self._describe_broker(int(entity))
        for attempts_left in reversed(range(ATTEMPTS_MAX)):
            try:
                return await self._changed(call, kind, entity, operations)
            except Problem as problem:
                if problem.status != 409 or not attempts_left:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _changed(
        self, call: Call, kind: str, entity: str, operations: Sequence[AlterOperation]
    ) -> JsonResponse:
        alteration = await self._changes.alteration(kind, entity, operations)
        if not alteration.operations:
            _check_exists(entity, alteration.version)
        if call.if_match is not None and call.if_match.partition(".")[0] != _version_text(alteration.version):
            raise Problem(
                412,
                "PRECONDITION_FAILED",
                "the settings no longer match If-Match",
                what_to_do="Read the settings again, then repeat the change.",
            )
        secrets = [name for name in alteration.settings if is_secret(name)]
        writes = ZnodeWrites(alteration.operations, secrets)
        znode_rows = await write(self._client, writes, dry_run=call.dry_run, if_match=call.if_match)
        rows = await self._rows(kind, entity, alteration.settings)
        names = {operation.name for operation in operations}
        following = 0 if alteration.version is None else alteration.version + 1
        is_deleted = any(isinstance(operation, Delete) for operation in alteration.operations)
        return JsonResponse(
            {"configs": [row for row in rows if row["name"] in names], "dry_run": call.dry_run, "znodes": znode_rows},
            etag=None if call.dry_run else _etag(None if is_deleted else following, rows),
        )


def _check_exists(subscription: str, version: int | None) -> None:
    if version is None:
        raise Problem(
            404,
            "UNKNOWN_SUBSCRIPTION",
            f"the client-metrics subscription {subscription!r} does not exist",
            what_to_do="GET /v1/configs/client-metrics lists the subscriptions; PATCH with metrics creates one.",
        )


def _operations(body: Mapping[str, Any]) -> list[AlterOperation]:
    values, names = body.get("set", {}), body.get("remove", [])
    if not values and not names:
        raise Problem(400, "INVALID_REQUEST", "the body contains no change", what_to_do="Name the settings to change.")
    return [
        *(AlterOperation(name, OperationType.SET, text_of(value)) for name, value in values.items()),
        *(AlterOperation(name, OperationType.DELETE, None) for name in names),
    ]


def _etag(version: int | None, rows: Sequence[Row]) -> str:
    """Return the ETag of a response; a write compares only the version, since the rest may differ between brokers."""
    digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
    return f"{_version_text(version)}.{digest}"


def _version_text(version: int | None) -> str:
    return "none" if version is None else str(version)
