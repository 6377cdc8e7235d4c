"""DescribeAcls (key 29), CreateAcls (key 30) and DeleteAcls (key 31)."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.membership.acl_store import AclStore
from kreplica.security.acls.acl import (
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    fault_of,
)
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_with_result

Row = dict[str, Any]


class DescribeAcls:
    """Lists the ACLs that match a filter, by resource pattern."""

    def __init__(self, store: AclStore) -> None:
        self._store = store

    def __call__(self, request: Request) -> None:
        try:
            acl_filter = _filter(request.body)
        except KafkaError as error:
            request.respond({"error_code": int(error.code), "error_message": error.message, "resources": []})
            return
        by_resource: dict[ResourcePattern, list[Row]] = {}
        for resource, acl in self._store.rules.select(acl_filter):
            by_resource.setdefault(resource, []).append(_acl_row(acl))
        resources = [{**_resource_row(resource), "acls": rows} for resource, rows in by_resource.items()]
        request.respond({"error_code": 0, "error_message": None, "resources": resources})


class CreateAcls:
    """Creates ACLs; each row is created or rejected separately."""

    def __init__(self, store: AclStore) -> None:
        self._store = store

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request.body))

    async def _response(self, body: Row) -> Row:
        results: list[Row] = [_ok() for _ in body["creations"]]
        valid: dict[ResourcePattern, list[tuple[int, Acl]]] = {}
        for number, row in enumerate(body["creations"]):
            try:
                resource, acl = _binding(row)
            except KafkaError as error:
                results[number] = _error(error)
            else:
                valid.setdefault(resource, []).append((number, acl))
        for resource, numbered in valid.items():
            try:
                await self._store.add(resource, [acl for _, acl in numbered])
            except KafkaError as error:
                for number, _ in numbered:
                    results[number] = _error(error)
        return {"results": results}


class DeleteAcls:
    """Deletes the ACLs that match any of the filters."""

    def __init__(self, store: AclStore) -> None:
        self._store = store

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request.body))

    async def _response(self, body: Row) -> Row:
        return {"filter_results": [await self._delete(row) for row in body["filters"]]}

    async def _delete(self, row: Row) -> Row:
        try:
            acl_filter = _filter(row)
            selected: dict[ResourcePattern, list[Acl]] = {}
            for resource, acl in await self._store.select(acl_filter):
                selected.setdefault(resource, []).append(acl)
            for resource, acls in selected.items():
                await self._store.remove(resource, acls)
        except KafkaError as error:
            return {**_error(error), "matching_acls": []}
        matching = [
            {**_ok(), **_resource_row(resource), **_acl_row(acl)} for resource, acls in selected.items() for acl in acls
        ]
        return {**_ok(), "matching_acls": matching}


def _filter(row: Row) -> AclFilter:
    try:
        return AclFilter(
            ResourceType(row["resource_type_filter"]),
            row["resource_name_filter"],
            PatternType(row.get("pattern_type_filter", PatternType.LITERAL)),
            row["principal_filter"],
            row["host_filter"],
            AclOperation(row["operation"]),
            Permission(row["permission_type"]),
        )
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The filter contains an unknown element: {error}") from None


def _binding(row: Row) -> tuple[ResourcePattern, Acl]:
    try:
        kind = ResourceType(row["resource_type"])
        pattern = PatternType(row.get("resource_pattern_type", PatternType.LITERAL))
        operation, permission = AclOperation(row["operation"]), Permission(row["permission_type"])
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The ACL contains an unknown element: {error}") from None
    resource = ResourcePattern(kind, row["resource_name"], pattern)
    acl = Acl(row["principal"], row["host"], operation, permission)
    fault = fault_of(resource, acl)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, fault)
    return resource, acl


def _resource_row(resource: ResourcePattern) -> Row:
    return {
        "resource_type": int(resource.type),
        "resource_name": resource.name,
        "pattern_type": int(resource.pattern),
    }


def _acl_row(acl: Acl) -> Row:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }


def _ok() -> Row:
    return {"error_code": 0, "error_message": None}


def _error(error: KafkaError) -> Row:
    return {"error_code": int(error.code), "error_message": error.message}
