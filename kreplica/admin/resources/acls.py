"""``/v1/acls`` and ``/v1/why/access``: lists, creates and deletes ACLs, and explains decisions about access."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kreplica.admin.cluster_state.znode_writes import ZnodeWrites
from kreplica.admin.http.api import LIMIT, Call, JsonResponse, Parameter, Route, page_of
from kreplica.admin.http.callers import LISTENER, Authorizer
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import BOOLEAN, STRING, listing, nullable, one_of, page, record, written
from kreplica.errors import ErrorCode, KafkaError
from kreplica.interfaces.authorization import Operation, Principal, Resource
from kreplica.interfaces.authorization import ResourceType as PluginResourceType
from kreplica.security.acls.acl import (
    CLUSTER_NAME,
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
from kreplica.security.acls.authorizer import AclAuthorizer
from kreplica.security.acls.explanation import Binding, Decision, Reason, explain
from kreplica.security.acls.rules import AclRules
from kreplica.security.acls.znodes import CHANGES, ROOTS
from kreplica.zookeeper import Operation as ZooKeeperOperation

PATH = "/v1/acls"
WHY_ACCESS = "/v1/why/access"
ACLS_MAX = 1000
"""Maximum number of ACLs in one request."""


def _names(members: Iterable[Any], *excluded: Any) -> list[str]:
    return [each.name.lower() for each in members if each not in excluded]


RESOURCE_TYPES = _names(ResourceType, ResourceType.ANY)
OPERATIONS = _names(AclOperation, AclOperation.ANY)
PERMISSIONS = _names(Permission, Permission.ANY)
PATTERN_TYPES = _names(PatternType, PatternType.ANY, PatternType.MATCH)

TEXT = {"type": "string", "minLength": 1, "maxLength": 1000}
HOST = {"type": "string", "minLength": 1, "maxLength": 100}
PRINCIPAL = {**TEXT, "description": "Such as `User:alice`; `User:*` for all users.", "examples": ["User:alice"]}

ACL = record(
    {
        "resource_type": one_of(*RESOURCE_TYPES),
        "resource_name": {**TEXT, "description": f"`*` for all; `{CLUSTER_NAME}` for the cluster."},
        "pattern_type": one_of(*PATTERN_TYPES),
        "principal": PRINCIPAL,
        "host": {**HOST, "description": "IP address of the client; `*` for all."},
        "operation": one_of(*OPERATIONS),
        "permission": one_of(*PERMISSIONS),
    },
    title="Acl",
)
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

PLUGIN, NO_AUTHORIZER = "plugin", "no_authorizer"
REASONS = (*(each.value for each in Reason), PLUGIN, NO_AUTHORIZER)
ACCESS = record(
    {
        "principal": STRING,
        "host": STRING,
        "operation": one_of(*OPERATIONS),
        "resource_type": one_of(*RESOURCE_TYPES),
        "resource_name": STRING,
        "allowed": BOOLEAN,
        "reason": one_of(*REASONS),
        "summary": {**STRING, "description": "The decision and its reason as a sentence."},
        "acl": {**nullable(ACL), "description": "The ACL that decided; null if none did."},
        "applying": {
            **listing(ACL),
            "description": "All ACLs of the user on the resource, including those for other operations and addresses.",
        },
    },
    title="Access",
)

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
QUESTION = (
    Parameter("principal", TEXT, "The user, such as `User:alice`; required."),
    Parameter("operation", one_of(*OPERATIONS), "The operation; required."),
    Parameter("resource_type", one_of(*RESOURCE_TYPES), "The type of the resource.", default="topic"),
    Parameter("resource_name", TEXT, f"The name of the resource; required except for the cluster (`{CLUSTER_NAME}`)."),
    Parameter("host", HOST, "The IP address of the client; without it, only ACLs for all addresses apply."),
)
_DISABLED = {403: "authorizer.class.name is not set."}
_ZNODES = (
    *(f"{root}/{{resource_type}}/{{resource_name}}" for root in ROOTS.values()),
    *(f"{parent}/acl_changes_" for parent in CHANGES.values()),
)

Row = dict[str, Any]


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
    :param authorizer: the authorizer that uses these ACLs; None if the broker has none.
    :param plugin: the authorizer plugin; None if the broker has none.
    """

    def __init__(
        self, store: AclWriter | None, authorizer: AclAuthorizer | None, plugin: Authorizer | None
    ) -> None:
        self._store = store
        self._authorizer = authorizer
        self._plugin = plugin

    def routes(self) -> Sequence[Route]:
        """Return the routes of ACLs, and of the explanation of access."""
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
            Route(
                "GET",
                WHY_ACCESS,
                self.why,
                "Explain whether a user may perform an operation, and which ACL decides.",
                response=ACCESS,
                query=QUESTION,
            ),
        )

    # --- lists -------------------------------------------------------------------------------------------------------

    async def list_all(self, call: Call) -> JsonResponse:
        """``GET /v1/acls``."""
        bindings = {_key(binding): binding for binding in self._writer().rules.select(_filter(call.query))}
        page, following = page_of(sorted(bindings), call)
        return JsonResponse({"acls": [_row(bindings[key]) for key in page], "next": following})

    # --- writes ------------------------------------------------------------------------------------------------------

    async def create(self, call: Call) -> JsonResponse:
        """``POST /v1/acls``."""
        writer = self._writer()
        bindings = [_binding(number, row) for number, row in enumerate(call.body["acls"])]
        operations: list[ZooKeeperOperation] = []
        for resource, acls in _by_resource(bindings).items():
            operations += await writer.add(resource, acls, dry_run=call.dry_run)
        return _changed(bindings, operations, call)

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
        return _changed(bindings, operations, call)

    def _writer(self) -> AclWriter:
        if self._store is None:
            raise KafkaError(
                ErrorCode.SECURITY_DISABLED,
                "this broker has no ACLs: authorizer.class.name is not set",
            )
        return self._store

    # --- explanations ------------------------------------------------------------------------------------------------

    async def why(self, call: Call) -> JsonResponse:
        """``GET /v1/why/access``."""
        query = call.query
        kind = ResourceType[query["resource_type"].upper()]
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else query["resource_name"]
        missing = [each for each in ("principal", "operation") if query[each] is None]
        missing += ["resource_name"] if name is None else []
        if missing:
            detail = f"the query parameters {', '.join(missing)} are missing"
            raise Problem(400, "INVALID_REQUEST", detail, what_to_do="Specify user, operation and resource.")
        operation, host = AclOperation[query["operation"].upper()], query["host"] or WILDCARD
        decision: Decision | None = None
        if self._authorizer is not None:
            decision = explain(self._authorizer, query["principal"], host, operation, kind, name)
            allowed, reason = decision.is_allowed, decision.reason.value
        elif self._plugin is not None:
            allowed, reason = _plugin_decision(
                self._plugin, Principal(query["principal"], host, LISTENER, None), query, name
            )
        else:
            allowed, reason = True, NO_AUTHORIZER
        kind_text = kind.name.lower().replace("_", " ")
        resource_text = "the cluster" if kind is ResourceType.CLUSTER else f"{kind_text} {name!r}"
        verdict = "may" if allowed else "may not"
        answer = f"{query['principal']} {verdict} {_action_text(operation)} {resource_text}"
        return JsonResponse(
            {
                "principal": query["principal"],
                "host": host,
                "operation": query["operation"],
                "resource_type": query["resource_type"],
                "resource_name": name,
                "allowed": allowed,
                "reason": reason,
                "summary": f"{answer}: {_REASON_TEXTS[reason]}.",
                "acl": None if decision is None or decision.binding is None else _row(decision.binding),
                "applying": [] if decision is None else [_row(each) for each in sorted(decision.applying, key=_key)],
            }
        )


_VERBS = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
)
"""Operations whose names are verbs that take the resource as their object."""


def _action_text(operation: AclOperation) -> str:
    """Return the operation as Kafka writes it, with the words that lead to the resource: ``Read``."""
    name = operation.name.title().replace("_", "")  # DescribeConfigs
    return name if operation in _VERBS else f"perform {name} on"


_REASON_TEXTS: Mapping[str, str] = {
    Reason.SUPER_USER.value: "the user is one of super.users",
    Reason.DENIED_BY_ACL.value: "an ACL denies it",
    Reason.ALLOWED_BY_ACL.value: "an ACL allows it",
    Reason.NO_ALLOWING_ACL.value: "the resource has ACLs, but none that allows it",
    Reason.NO_ACL.value: "the resource has no ACLs",
    Reason.EVERYONE_ALLOWED.value: "the resource has no ACLs, and allow.everyone.if.no.acl.found is true",
    PLUGIN: "the authorizer plugin decides",
    NO_AUTHORIZER: "the broker has no authorizer",
}


def _plugin_decision(plugin: Authorizer, principal: Principal, query: Mapping[str, Any], name: str) -> tuple[bool, str]:
    """Return the decision of a plugin.

    :raise Problem: 400 for an operation or type of resource that plugins do not support.
    """
    try:
        operation, kind = Operation(query["operation"]), PluginResourceType(query["resource_type"])
    except ValueError as error:
        raise Problem(400, "INVALID_REQUEST", f"the authorizer plugin does not support the request: {error}") from None
    return plugin.permits(principal, operation, Resource(kind, name)), PLUGIN


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


def _row(binding: Binding) -> Row:
    resource, acl = binding
    return {
        "resource_type": resource.type.name.lower(),
        "resource_name": resource.name,
        "pattern_type": resource.pattern.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name.lower(),
        "permission": acl.permission.name.lower(),
    }


def _key(binding: Binding) -> str:
    """Return a text that identifies an ACL; the order of these texts groups the ACLs by resource."""
    return json.dumps(list(_row(binding).values()), ensure_ascii=False)


def _by_resource(bindings: Iterable[Binding]) -> dict[ResourcePattern, list[Acl]]:
    found: dict[ResourcePattern, list[Acl]] = {}
    for resource, acl in bindings:
        found.setdefault(resource, []).append(acl)
    return found


def _changed(bindings: Sequence[Binding], operations: Sequence[ZooKeeperOperation], call: Call) -> JsonResponse:
    znodes = ZnodeWrites(operations).document()
    return JsonResponse({"acls": [_row(each) for each in bindings], "dry_run": call.dry_run, "znodes": znodes})
