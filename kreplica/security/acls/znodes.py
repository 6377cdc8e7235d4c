"""Names and data of the znodes with ACLs, as Kafka 3.9 writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from kreplica.security.acls.acl import Acl, AclOperation, PatternType, Permission, ResourcePattern, ResourceType

ROOTS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
"""Parents of the resource types, by pattern type."""

CHANGES = {PatternType.LITERAL: "/kafka-acl-changes", PatternType.PREFIXED: "/kafka-acl-extended-changes"}
"""Parents of notifications, by pattern type."""

CHANGE_PREFIX = "acl_changes_"
TYPE_NAMES = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}
"""Names of znodes by resource type."""

PATHS = (
    "/kafka-acl-extended",
    *(path for root in ROOTS.values() for path in (root, *(f"{root}/{name}" for name in TYPE_NAMES.values()))),
    *CHANGES.values(),
)
"""Persistent znodes, parents first."""

_OPERATION_NAMES = {each: "".join(part.capitalize() for part in each.name.split("_")) for each in AclOperation}
_OPERATIONS = {name.lower(): each for each, name in _OPERATION_NAMES.items()}


def path_of(resource: ResourcePattern) -> str:
    """Return the path of the znode with a pattern's ACLs."""
    return f"{ROOTS[resource.pattern]}/{TYPE_NAMES[resource.type]}/{resource.name}"


def encode_acls(acls: Iterable[Acl]) -> bytes:
    """Return the data of a pattern's znode."""
    rows = [
        {
            "principal": acl.principal,
            "permissionType": acl.permission.name.capitalize(),
            "operation": _OPERATION_NAMES[acl.operation],
            "host": acl.host,
        }
        for acl in sorted(acls)
    ]
    return json.dumps({"version": 1, "acls": rows}, separators=(",", ":")).encode()


def decode_acls(data: bytes) -> frozenset[Acl]:
    """Return the ACLs in the data of a znode.

    :raise ValueError: the data is malformed.
    """
    try:
        rows = json.loads(data)["acls"] if data else ()
        return frozenset(
            Acl(
                str(row["principal"]),
                str(row["host"]),
                _OPERATIONS[row["operation"].lower()],
                Permission[row["permissionType"].upper()],
            )
            for row in rows
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"malformed ACLs: {type(error).__name__}: {error}") from None


def encode_change(resource: ResourcePattern) -> bytes:
    """Return the data of a notification."""
    if resource.pattern is PatternType.LITERAL:
        return f"{TYPE_NAMES[resource.type]}:{resource.name}".encode()
    change = {"version": 1, "resourceType": resource.type.name, "name": resource.name, "patternType": "PREFIXED"}
    return json.dumps(change, separators=(",", ":")).encode()
