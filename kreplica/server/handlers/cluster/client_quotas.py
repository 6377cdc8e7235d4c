"""DescribeClientQuotas (key 48) and AlterClientQuotas (key 49): quotas of users, client IDs and addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kreplica.cluster.quotas import CLIENT_QUOTAS, IP_QUOTAS, QuotaEntity, quota_fault
from kreplica.cluster.znodes import DEFAULT_ENTITY
from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership.host_addresses import HostAddresses
from kreplica.membership.quota_store import QuotaStore
from kreplica.membership.zookeeper_errors import translate_errors
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_with_result
from kreplica.server.quotas.client_quotas import ClientQuotas

Row = dict[str, Any]

USER, CLIENT_ID, IP = TYPES = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2
"""Match types of DescribeClientQuotas."""


class DescribeClientQuotas:
    """Lists the quotas whose entities match a filter."""

    def __init__(self, quotas: ClientQuotas, store: QuotaStore) -> None:
        self._quotas = quotas
        self._store = store

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request.body))

    async def _response(self, body: Row) -> Row:
        try:
            filters = _filters(body["components"])
            await translate_errors(self._store.refresh())
        except KafkaError as error:
            return {"error_code": int(error.code), "error_message": error.message, "entries": None}
        rows = [
            {
                "entity": _entity_rows(entity),
                "values": [{"key": name, "value": value} for name, value in sorted(values.items())],
            }
            for entity, values in sorted(self._quotas.entries.items(), key=str)
            if _matches(entity, filters, strict=body["strict"])
        ]
        return {"error_code": 0, "error_message": None, "entries": rows}


class AlterClientQuotas:
    """Sets and removes quotas; each entity succeeds or fails separately."""

    def __init__(self, store: QuotaStore, hosts: HostAddresses) -> None:
        self._store = store
        self._hosts = hosts

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request.body))

    async def _response(self, body: Row) -> Row:
        rows = []
        for entry in body["entries"]:
            code, message = ErrorCode.NONE, None
            try:
                entity = _entity(entry["entity"])
                changes = _changes(entry["ops"], entity)
                await self._hosts.check(entity)
                await self._store.change(entity, changes, dry_run=body["validate_only"])
            except KafkaError as error:
                code, message = error.code, error.message
            rows.append({"error_code": int(code), "error_message": message, "entity": entry["entity"]})
        return {"entries": rows}


def _entity(rows: Sequence[Row]) -> QuotaEntity:
    parts: dict[str, str] = {}
    for row in rows:
        entity_type, name = row["entity_type"], row["entity_name"]
        if entity_type not in TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {entity_type}")
        if entity_type in parts:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate {entity_type} entity")
        if name == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Empty {entity_type} entity name")
        if name == DEFAULT_ENTITY:
            text = f"{DEFAULT_ENTITY} is not a name: the default entity has a null name"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        parts[entity_type] = DEFAULT_ENTITY if name is None else name
    if not parts:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    if IP in parts and len(parts) > 1:
        text = "Invalid quota entity combination, IP entity should not be used with user/client ID entity."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return QuotaEntity(parts.get(USER), parts.get(CLIENT_ID), parts.get(IP))


def _changes(rows: Sequence[Row], entity: QuotaEntity) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    for row in rows:
        name, value = row["key"], row["value"]
        if name not in (CLIENT_QUOTAS if entity.ip is None else IP_QUOTAS):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {name}")
        if name in changes:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} appears more than once")
        if row["remove"]:
            changes[name] = None
            continue
        fault = quota_fault(name, value)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is {value}; {fault}")
        changes[name] = value
    return changes


def _filters(rows: Sequence[Row]) -> dict[str, tuple[int, str | None]]:
    filters: dict[str, tuple[int, str | None]] = {}
    for row in rows:
        entity_type, kind, match = row["entity_type"], row["match_type"], row["match"]
        if entity_type not in TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{entity_type}' not supported")
        if entity_type in filters:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate {entity_type} filter component entity type")
        if kind not in (EXACT, DEFAULT, ANY) or (kind == EXACT) != (match is not None):
            text = f"{entity_type}: match type {kind} does not fit the match {match!r}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        filters[entity_type] = (kind, match)
    if IP in filters and len(filters) > 1:
        text = (
            "Invalid entity filter component combination, IP filter component should not be used with user or "
            "clientId filter component."
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return filters


def _matches(entity: QuotaEntity, filters: dict[str, tuple[int, str | None]], *, strict: bool) -> bool:
    """Return True if an entity has all filtered types, and with ``strict`` no others."""
    for entity_type, name in _parts(entity):
        if entity_type not in filters:
            if strict and name is not None:
                return False
            continue
        kind, match = filters[entity_type]
        if (
            name is None
            or (kind == EXACT and name != match)
            or (kind == DEFAULT and name != DEFAULT_ENTITY)
        ):
            return False
    return True


def _entity_rows(entity: QuotaEntity) -> list[Row]:
    return [
        {"entity_type": entity_type, "entity_name": None if name == DEFAULT_ENTITY else name}
        for entity_type, name in _parts(entity)
        if name is not None
    ]


def _parts(entity: QuotaEntity) -> tuple[tuple[str, str | None], ...]:
    return ((USER, entity.user), (CLIENT_ID, entity.client_id), (IP, entity.ip))
