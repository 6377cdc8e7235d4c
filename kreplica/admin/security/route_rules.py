"""The permissions that each route requires: those of the equivalent Kafka requests.

Requests to a route without a rule are rejected unless the caller has the token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kreplica.admin.http.api import Call, Route
from kreplica.admin.http.callers import FORBIDDEN, group, topic, user
from kreplica.admin.http.problems import Problem
from kreplica.interfaces.authorization import CLUSTER, Operation, Resource

Need = tuple[Operation, Resource]
"""An operation on a resource that the caller must be authorized for."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The permissions for one route.

    :param text: the permissions in words, for the documentation.
    :param needs: returns the permissions that a call requires.
    :param any_of: True if one of them is enough.
    :param public: True if callers need not authenticate.
    """

    text: str
    needs: Callable[[Call], Sequence[Need]]
    any_of: bool = False
    public: bool = False


def _on_cluster(operation: Operation) -> Rule:
    return Rule(f"{_name(operation)} on the cluster", lambda _: [(operation, CLUSTER)])


def _on_topic(operation: Operation) -> Rule:
    return Rule(f"{_name(operation)} on the topic", lambda call: [(operation, topic(call.path["topic"]))])


def _on_group(operation: Operation) -> Rule:
    return Rule(f"{_name(operation)} on the group", lambda call: [(operation, group(call.path["group"]))])


def _name(operation: Operation) -> str:
    """Return Kafka's name of an operation, such as DescribeConfigs."""
    return "".join(part.capitalize() for part in operation.value.split("_"))


def _create_topic(call: Call) -> Sequence[Need]:
    return [(Operation.CREATE, CLUSTER), (Operation.CREATE, topic(call.body["name"]))]


def _reset_offsets(call: Call) -> Sequence[Need]:
    """Return the permissions on the group and the named topics; without names, the handler checks the topics."""
    topics = call.body.get("topics") or {}
    return [(Operation.READ, group(call.path["group"])), *((Operation.READ, topic(name)) for name in topics)]


def _delete_offsets(call: Call) -> Sequence[Need]:
    name = call.query["topic"]
    on_topic = [] if name is None else [(Operation.READ, topic(name))]
    return [(Operation.DELETE, group(call.path["group"])), *on_topic]


def _explain_access(call: Call) -> Sequence[Need]:
    """Return no permissions if the caller asks about its own access."""
    return () if call.query["principal"] == call.caller.user else [(Operation.DESCRIBE, CLUSTER)]


def _create_token(call: Call) -> Sequence[Need]:
    """Return no permissions if the caller creates its own token."""
    owner = call.body.get("owner", call.caller.user)
    return () if owner == call.caller.user else [(Operation.CREATE_TOKENS, user(owner))]


def _nothing(_: Call) -> Sequence[Need]:
    return ()


PUBLIC = Rule("no authentication", _nothing, public=True)
AUTHENTICATED = Rule("authentication only", _nothing)
LISTED_TOPICS = Rule("authentication only; lists the topics with Describe", _nothing)
LISTED_GROUPS = Rule(
    "authentication only; lists the groups with Describe, or all groups with Describe on the cluster", _nothing
)
LISTED_TOKENS = Rule(
    "authentication only; lists the caller's tokens, tokens with Describe, and tokens of users with DescribeTokens",
    _nothing,
)
RENEWED_TOKENS = Rule("authentication only, as the owner or a renewer of the token", _nothing)

_DESCRIBE, _ALTER = _on_cluster(Operation.DESCRIBE), _on_cluster(Operation.ALTER)
_DESCRIBE_TOPIC, _READ_TOPIC = _on_topic(Operation.DESCRIBE), _on_topic(Operation.READ)
_DESCRIBE_GROUP = _on_group(Operation.DESCRIBE)
_DESCRIBE_GROUP_AND_TOPICS = Rule(
    "Describe on the group; offsets only of topics with Describe", _DESCRIBE_GROUP.needs
)

RULES: Mapping[str, Rule] = {
    # The process.
    "GET /": PUBLIC,
    "GET /dashboard/{file:path}": PUBLIC,
    "GET /health/live": PUBLIC,
    "GET /health/ready": PUBLIC,
    "GET /openapi.json": AUTHENTICATED,
    "GET /metrics": _DESCRIBE,
    "GET /v1/live-metrics": _DESCRIBE,
    "GET /v1/figures": _DESCRIBE,
    "GET /v1/loads/topics": _DESCRIBE,
    "GET /v1/loads/groups": _DESCRIBE,
    "GET /v1/loads/clients": _DESCRIBE,
    "GET /v1/health": _DESCRIBE,
    "GET /v1/health/broker": _DESCRIBE,
    "GET /v1/history": _DESCRIBE,
    # Access.
    "GET /v1/session": AUTHENTICATED,
    "POST /v1/session": PUBLIC,
    "DELETE /v1/session": AUTHENTICATED,
    "GET /v1/users": _DESCRIBE,
    "PUT /v1/users/{user:path}": _ALTER,
    "DELETE /v1/users/{user:path}": _ALTER,
    "GET /v1/acls": _DESCRIBE,
    "POST /v1/acls": _ALTER,
    "DELETE /v1/acls": _ALTER,
    "GET /v1/tokens": LISTED_TOKENS,
    "POST /v1/tokens": Rule("authentication only; CreateTokens on the owner if it is another user", _create_token),
    "POST /v1/tokens/{token}/renew": RENEWED_TOKENS,
    "POST /v1/tokens/{token}/expire": RENEWED_TOKENS,
    "GET /v1/quotas": _on_cluster(Operation.DESCRIBE_CONFIGS),
    "PATCH /v1/quotas": _on_cluster(Operation.ALTER_CONFIGS),
    "GET /v1/throttled-clients": _on_cluster(Operation.DESCRIBE_CONFIGS),
    # The cluster.
    "GET /v1/cluster": _DESCRIBE,
    "GET /v1/brokers": _DESCRIBE,
    "GET /v1/brokers/{broker_id}": _DESCRIBE,
    "GET /v1/brokers/{broker_id}/connections": _DESCRIBE,
    "GET /v1/clients": _DESCRIBE,
    "GET /v1/clients/{client_instance_id}": _DESCRIBE,
    "PUT /v1/brokers/{broker_id}/cordon": _ALTER,
    "DELETE /v1/brokers/{broker_id}/cordon": _ALTER,
    "GET /v1/controller": _DESCRIBE,
    "POST /v1/controller/resign": _ALTER,
    "GET /v1/elections": _DESCRIBE,
    "POST /v1/elections": _ALTER,
    "GET /v1/timeline": _DESCRIBE,
    "GET /v1/events": _DESCRIBE,
    # Plans.
    "GET /v1/plans": _DESCRIBE,
    "GET /v1/plans/{plan}": _DESCRIBE,
    "GET /v1/plans/{plan}/moves": _DESCRIBE,
    "POST /v1/plans": _ALTER,
    "PATCH /v1/plans/{plan}": _ALTER,
    "DELETE /v1/plans/{plan}": _ALTER,
    "POST /v1/plans/{plan}/cancel": _ALTER,
    # Topics.
    "GET /v1/topics": LISTED_TOPICS,
    "GET /v1/topics/{topic}": Rule(
        "Describe on the topic; its settings only with DescribeConfigs", _DESCRIBE_TOPIC.needs
    ),
    "POST /v1/topics": Rule("Create on the topic or the cluster", _create_topic, any_of=True),
    "PATCH /v1/topics/{topic}": _on_topic(Operation.ALTER),
    "DELETE /v1/topics/{topic}": _on_topic(Operation.DELETE),
    "GET /v1/partitions": LISTED_TOPICS,
    "GET /v1/topics/{topic}/partitions": _DESCRIBE_TOPIC,
    "GET /v1/topics/{topic}/partitions/{partition}": _DESCRIBE_TOPIC,
    "GET /v1/topics/{topic}/history": _DESCRIBE_TOPIC,
    "GET /v1/decisions/{topic}/{partition}": _DESCRIBE_TOPIC,
    # Settings.
    "GET /v1/configs/topics/{topic}": _on_topic(Operation.DESCRIBE_CONFIGS),
    "PATCH /v1/configs/topics/{topic}": _on_topic(Operation.ALTER_CONFIGS),
    "GET /v1/configs/brokers/{broker}": _on_cluster(Operation.DESCRIBE_CONFIGS),
    "PATCH /v1/configs/brokers/{broker}": _on_cluster(Operation.ALTER_CONFIGS),
    "GET /v1/configs/client-metrics": _on_cluster(Operation.DESCRIBE_CONFIGS),
    "GET /v1/configs/client-metrics/{subscription}": _on_cluster(Operation.DESCRIBE_CONFIGS),
    "PATCH /v1/configs/client-metrics/{subscription}": _on_cluster(Operation.ALTER_CONFIGS),
    # Records.
    "GET /v1/topics/{topic}/messages": _READ_TOPIC,
    "GET /v1/topics/{topic}/messages/tail": _READ_TOPIC,
    "GET /v1/topics/{topic}/messages/download": _READ_TOPIC,
    "POST /v1/topics/{topic}/messages": _on_topic(Operation.WRITE),
    "DELETE /v1/topics/{topic}/messages": _on_topic(Operation.DELETE),
    "GET /v1/formats": AUTHENTICATED,
    # Groups.
    "GET /v1/groups": LISTED_GROUPS,
    "GET /v1/groups/{group:path}": _DESCRIBE_GROUP_AND_TOPICS,
    "GET /v1/groups/{group:path}/lag": _DESCRIBE_GROUP_AND_TOPICS,
    "GET /v1/groups/{group:path}/history": _DESCRIBE_GROUP,
    "DELETE /v1/groups/{group:path}": _on_group(Operation.DELETE),
    "POST /v1/groups/{group:path}/offsets": Rule("Read on the group and the topics", _reset_offsets),
    "DELETE /v1/groups/{group:path}/offsets": Rule("Delete on the group, and Read on the topic", _delete_offsets),
    # Explanations.
    "GET /v1/why/partitions/{topic}/{partition}": _DESCRIBE_TOPIC,
    "GET /v1/why/groups/{group:path}": _DESCRIBE_GROUP,
    "GET /v1/why/access": Rule(
        "Describe on the cluster; authentication only for the caller's own access", _explain_access
    ),
    "GET /v1/why/client": _on_cluster(Operation.DESCRIBE_CONFIGS),
    "GET /v1/why/plans/{plan}": _DESCRIBE,
    "GET /v1/why/brokers/{broker_id}": _DESCRIBE,
    # Faults of a standalone process.
    "GET /v1/standalone": _DESCRIBE,
    "POST /v1/standalone/brokers/{broker_id}/kill": _ALTER,
    "POST /v1/standalone/brokers/{broker_id}/start": _ALTER,
    "POST /v1/standalone/brokers/{broker_id}/pause": _ALTER,
    "POST /v1/standalone/brokers/{broker_id}/resume": _ALTER,
    "POST /v1/standalone/brokers/{broker_id}/cut": _ALTER,
    "POST /v1/standalone/brokers/{broker_id}/mend": _ALTER,
}
"""The rules by method and path."""

PUBLIC_ROUTES = frozenset(name for name, rule in RULES.items() if rule.public)


def authorize(route: Route, call: Call) -> None:
    """Check that the caller has the permissions that a route requires.

    :raise Problem: 403.
    """
    caller = call.caller
    if caller.is_super or caller.authorizer is None:
        return
    rule = RULES.get(route.name)
    if rule is None:
        raise Problem(FORBIDDEN, "FORBIDDEN", f"only callers with the token may use {route.name}")
    needs = rule.needs(call)
    if rule.any_of:
        if not any(caller.may(*need) for need in needs):
            raise caller.denied(*needs[-1])
        return
    for need in needs:
        caller.require(*need)
