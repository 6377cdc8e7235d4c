"""ACLs, resource patterns and filters, with the codes of Kafka's protocol."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"


class ResourceType(IntEnum):
    """Resource types."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a pattern selects resources; MATCH and ANY are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Operations on resources; ANY is for filters only."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    """Effect of an ACL; ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resources to which an ACL applies: one name, all names (``*``), or all names with a prefix."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def selects(self, name: str) -> bool:
        """Return True if the pattern selects the resource with this name."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class Acl(NamedTuple):
    """A permission or denial of an operation.

    :param principal: such as ``User:alice``; ``User:*`` for all.
    :param host: an IP address; ``*`` for all.
    """

    principal: str
    host: str
    operation: AclOperation
    permission: Permission


DENY_ALL = Acl("User:*", WILDCARD, AclOperation.ALL, Permission.DENY)
"""Denies everything to everyone but super users."""


class AclFilter(NamedTuple):
    """Selects ACLs; a field that is None or ANY matches everything."""

    type: ResourceType
    name: str | None
    pattern: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: Permission

    def selects(self, resource: ResourcePattern, acl: Acl) -> bool:
        """Return True if the filter selects this ACL of this resource pattern."""
        return (
            self.type in (ResourceType.ANY, resource.type)
            and self._selects_name(resource)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _selects_name(self, resource: ResourcePattern) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, resource.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is PatternType.MATCH:
            return resource.selects(self.name)
        return self.name == resource.name


NAME_CHARACTERS_MAX = 1000


def fault_of(resource: ResourcePattern, acl: Acl) -> str | None:
    """Return the reason why an ACL cannot be created, as in Kafka; None if it is valid."""
    name = resource.name
    if ResourceType.ANY is resource.type or resource.pattern in (PatternType.ANY, PatternType.MATCH):
        return "The ACL's resource type and pattern type must be specific"
    if AclOperation.ANY is acl.operation or Permission.ANY is acl.permission:
        return "The ACL's operation and permission type must be specific"
    if not name or len(name) > NAME_CHARACTERS_MAX or "/" in name:
        return "The resource name is too long or contains a slash" if name else "Invalid empty resource name"
    if resource.type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if ":" not in acl.principal:
        return "Could not parse principal: expected type and name, such as User:alice"
    return None
