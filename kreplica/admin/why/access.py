"""``/v1/why/access``: explains whether a user may perform an operation, and which ACL decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kreplica.admin.http.api import Call, JsonResponse, Parameter, Route
from kreplica.admin.http.callers import LISTENER, Authorizer
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import BOOLEAN, STRING, listing, nullable, one_of, record
from kreplica.admin.security.acl_documents import ACL, HOST, OPERATIONS, RESOURCE_TYPES, TEXT, acl_key, acl_row
from kreplica.interfaces.authorization import Operation, Principal, Resource
from kreplica.interfaces.authorization import ResourceType as PluginResourceType
from kreplica.security.acls.acl import CLUSTER_NAME, WILDCARD, AclOperation, ResourceType
from kreplica.security.acls.authorizer import AclAuthorizer
from kreplica.security.acls.explanation import Decision, Reason, explain

PATH = "/v1/why/access"

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

QUESTION = (
    Parameter("principal", TEXT, "The user, such as `User:alice`; required."),
    Parameter("operation", one_of(*OPERATIONS), "The operation; required."),
    Parameter("resource_type", one_of(*RESOURCE_TYPES), "The type of the resource.", default="topic"),
    Parameter("resource_name", TEXT, f"The name of the resource; required except for the cluster (`{CLUSTER_NAME}`)."),
    Parameter("host", HOST, "The IP address of the client; without it, only ACLs for all addresses apply."),
)


class AccessExplanations:
    """Explanations of decisions about access.

    :param authorizer: the authorizer that uses the cluster's ACLs; None if the broker has none.
    :param plugin: the authorizer plugin; None if the broker has none.
    """

    def __init__(self, authorizer: AclAuthorizer | None, plugin: Authorizer | None) -> None:
        self._authorizer = authorizer
        self._plugin = plugin

    def routes(self) -> Sequence[Route]:
        """Return the route of explanations."""
        return (
            Route(
                "GET",
                PATH,
                self.explain,
                "Explain whether a user may perform an operation, and which ACL decides.",
                response=ACCESS,
                query=QUESTION,
            ),
        )

    async def explain(self, call: Call) -> JsonResponse:
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
        applying = [] if decision is None else sorted(decision.applying, key=acl_key)
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
                "acl": None if decision is None or decision.binding is None else acl_row(decision.binding),
                "applying": [acl_row(each) for each in applying],
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
    """Return a phrase that takes the resource as its object: ``Read`` or ``perform DescribeConfigs on``."""
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
