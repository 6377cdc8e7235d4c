"""ACLs as JSON documents."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kreplica.admin.http.schemas import one_of, record
from kreplica.security.acls.acl import CLUSTER_NAME, AclOperation, PatternType, Permission, ResourceType
from kreplica.security.acls.explanation import Binding

Row = dict[str, Any]


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


def acl_row(binding: Binding) -> Row:
    """Return an ACL as encoded in responses."""
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


def acl_key(binding: Binding) -> str:
    """Return a string that identifies an ACL; sorting by it groups the ACLs by resource."""
    return json.dumps(list(acl_row(binding).values()), ensure_ascii=False)
