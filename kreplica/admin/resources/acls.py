"""``/v1/acls``: lists, creates and deletes ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kreplica.admin.cluster_state.znode_writes import ZnodeWrites
from kreplica.admin.http.api import LIMIT, Call, JsonResponse, Parameter, Route, page_of
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import listing, one_of, page, record, written
from kreplica.admin.security.acl_documents import (
    ACL,
    HOST,
    OPERATIONS,
    PATTERN_TYPES,
    PERMISSIONS,
    RESOURCE_TYPES,
    TEXT,
    Row,
    acl_key,
    acl_row,
)
from kreplica.errors import ErrorCode, KafkaError
from kreplica.security.acls.acl import (
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    fault_of,
)
from kreplica.security.acls.explanation import Binding
from kreplica.security.acls.rules import AclRules
from kreplica.security.acls.znodes import CHANGES, ROOTS
from kreplica.zookeeper import Operation as ZooKeeperOperation

PATH = "/v1/acls"
ACLS_MAX = 1000
"""Maximum number of ACLs in one request."""


NEW_ACL = record(
    ACL["properties"],
    title="NewAcl",
    optional=("pattern_type", "host", "permission"),
    description="`pattern_type` is `literal`, `host` is `*` and `permission` is `allow` if absent.",
)
NEW_ACLS = record(
    {"acls": listing(NEW_ACL, minItems=1, maxItems=ACLS_MAX)},
    title="NewAcls",
    examples=[
        {
            "acls": [
                {
                    "resource_type": "topic",
                    "resource_name": "orders",
                    "principal": "User:alice",
                    "operation": "read",
                }
            ]
        }
    ],
)
CHANGED = written({"acls": listing(ACL)}, title="AclsChanged")

AFTER_ACL = Parameter(
    "after", {"type": "string", "maxLength": 2500}, "Only entries after this one: `next` of the previous response."
)
FILTERS = (
    Parameter("resource_type", one_of(*RESOURCE_TYPES), "Only ACLs of this type of resource."),
    Parameter("resource_name", TEXT, "Only ACLs whose resource pattern has this name."),
    Parameter(
        "pattern_type",
        one_of(*PATTERN_TYPES, "match"),
        "Only patterns of this type; `match`: all patterns that apply to the resource with that name.",
    ),
    Parameter("principal", TEXT, "Only ACLs of this principal."),
    Parameter("host", HOST, "Only ACLs for this address."),
    Parameter("operation", one_of(*OPERATIONS), "Only ACLs for this operation."),
    Parameter("permission", one_of(*PERMISSIONS), "Only ACLs that allow, or only ACLs that deny."),
)
_DISABLED = {403: "authorizer.class.name is not set."}
_ZNODES = (
    *(f"{root}/{{resource_type}}/{{resource_name}}" for root in ROOTS.values()),
    *(f"{parent}/acl_changes_" for parent in CHANGES.values()),
)


class AclWriter(Protocol):
    """The ACLs in ZooKeeper."""

    @property
    def rules(self) -> AclRules: ...

    async def add(
        self, resource: ResourcePattern, acls: Iterable[Acl], *, dry_run: bool = False
    ) -> Sequence[ZooKeeperOperation]: ...

    async def select(self, acl_filter: AclFilter) -> list[tuple[ResourcePattern, Acl]]: ...

    async def remove(
        self, resource: ResourcePattern, acls: Iterable[Acl], *, dry_run: bool = False
    ) -> Sequence[ZooKeeperOperation]: ...


class Acls:
    """ACLs of the cluster.

    :param store: None if the broker has no authorizer with ACLs.
    """

    def __init__(self, store: AclWriter | None) -> None:
        self._store = store

    def routes(self) -> Sequence[Route]:
        """Return the routes of ACLs."""
        return (
            Route(
                "GET",
                PATH,
                self.list_all,
                "All ACLs.",
                response=page("acls", ACL),
                query=(*FILTERS, LIMIT, AFTER_ACL),
                problems=_DISABLED,
            ),
            Route(
                "POST",
                PATH,
                self.create,
                "Create ACLs.",
                response=CHANGED,
                body=NEW_ACLS,
                znodes=_ZNODES,
                problems=_DISABLED,
            ),
            Route(
                "DELETE",
                PATH,
                self.delete,
                "Delete all ACLs that the filters select; at least one filter is required.",
                response=CHANGED,
                query=FILTERS,
                znodes=_ZNODES,
                problems=_DISABLED,
            ),
        )

    # --- lists -------------------------------------------------------------------------------------------------------

    async def list_all(self, call: Call) -> JsonResponse:
        """``GET /v1/acls``."""
        bindings = {acl_key(binding): binding for binding in self._writer().rules.select(_filter(call.query))}
        page, following = page_of(sorted(bindings), call)
        return JsonResponse({"acls": [acl_row(bindings[key]) for key in page], "next": following})

    # --- writes ------------------------------------------------------------------------------------------------------

    async def create(self, call: Call) -> JsonResponse:
        """``POST /v1/acls``."""
        writer = self._writer()
        bindings = [_binding(number, row) for number, row in enumerate(call.body["acls"])]
        operations: list[ZooKeeperOperation] = []
        for resource, acls in _by_resource(bindings).items():
            operations += await writer.add(resource, acls, dry_run=call.dry_run)
        return _change_response(bindings, operations, call)

    async def delete(self, call: Call) -> JsonResponse:
        """``DELETE /v1/acls``."""
        writer = self._writer()
        if all(call.query[parameter.name] is None for parameter in FILTERS):
            raise Problem(
                400,
                "INVALID_REQUEST",
                "the request has no filter and would delete all ACLs",
                what_to_do="Specify the ACLs to delete, for example ?principal=User:alice.",
            )
        bindings = await writer.select(_filter(call.query))
        operations: list[ZooKeeperOperation] = []
        for resource, acls in _by_resource(bindings).items():
            operations += await writer.remove(resource, acls, dry_run=call.dry_run)
        return _change_response(bindings, operations, call)

    def _writer(self) -> AclWriter:
        if self._store is None:
            raise KafkaError(
                ErrorCode.SECURITY_DISABLED,
                "this broker has no ACLs: authorizer.class.name is not set",
            )
        return self._store

def _filter(query: Mapping[str, Any]) -> AclFilter:
    def member(kind: Any, name: str) -> Any:
        text = query[name]
        return kind.ANY if text is None else kind[text.upper()]

    return AclFilter(
        member(ResourceType, "resource_type"),
        query["resource_name"],
        member(PatternType, "pattern_type"),
        query["principal"],
        query["host"],
        member(AclOperation, "operation"),
        member(Permission, "permission"),
    )


def _binding(number: int, row: Row) -> Binding:
    """Return an ACL of a request.

    :raise Problem: 400 if it is invalid.
    """
    pattern = PatternType[row.get("pattern_type", "literal").upper()]
    resource = ResourcePattern(ResourceType[row["resource_type"].upper()], row["resource_name"], pattern)
    operation = AclOperation[row["operation"].upper()]
    permission = Permission[row.get("permission", "allow").upper()]
    acl = Acl(row["principal"], row.get("host", WILDCARD), operation, permission)
    fault = fault_of(resource, acl)
    if fault is not None:
        raise Problem(400, "INVALID_REQUEST", f"body.acls[{number}]: {fault}")
    return resource, acl


def _by_resource(bindings: Iterable[Binding]) -> dict[ResourcePattern, list[Acl]]:
    found: dict[ResourcePattern, list[Acl]] = {}
    for resource, acl in bindings:
        found.setdefault(resource, []).append(acl)
    return found


def _change_response(bindings: Sequence[Binding], operations: Sequence[ZooKeeperOperation], call: Call) -> JsonResponse:
    znodes = ZnodeWrites(operations).document()
    return JsonResponse({"acls": [acl_row(each) for each in bindings], "dry_run": call.dry_run, "znodes": znodes})
