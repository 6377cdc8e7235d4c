"""All ACLs of a cluster, evaluated by the rules of Kafka's ``AclAuthorizer``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kreplica.security.acls.acl import (
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

ANY_USER = "User:*"

IMPLIED_BY = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""Operations whose permission implies another operation; a denial implies nothing."""


class AclRules:
    """The current ACLs; replaced as a whole when they change."""

    def __init__(self) -> None:
        self._literal: Mapping[tuple[ResourceType, str], frozenset[Acl]] = {}
        self._prefixed: Mapping[ResourceType, list[tuple[str, frozenset[Acl]]]] = {}
        self._all: Mapping[ResourcePattern, frozenset[Acl]] = {}

    def replace(self, acls: Mapping[ResourcePattern, frozenset[Acl]]) -> None:
        """Replace all ACLs."""
        literal: dict[tuple[ResourceType, str], frozenset[Acl]] = {}
        prefixed: dict[ResourceType, list[tuple[str, frozenset[Acl]]]] = {}
        for resource, entries in acls.items():
            if resource.pattern is PatternType.PREFIXED:
                prefixed.setdefault(resource.type, []).append((resource.name, entries))
            else:
                literal[resource.type, resource.name] = entries
        self._literal, self._prefixed, self._all = literal, prefixed, dict(acls)

    @property
    def patterns(self) -> Iterable[ResourcePattern]:
        """The patterns that have an entry, even an empty one."""
        return self._all.keys()

    def of(self, resource: ResourcePattern) -> frozenset[Acl]:
        """Return the ACLs whose pattern is exactly this one."""
        return self._all.get(resource, frozenset())

    def select(self, acl_filter: AclFilter) -> Iterator[tuple[ResourcePattern, Acl]]:
        """Iterate over the ACLs that a filter selects."""
        for resource, entries in self._all.items():
            for acl in sorted(entries):
                if acl_filter.selects(resource, acl):
                    yield resource, acl

    def decide(self, user: str, host: str, operation: AclOperation, kind: ResourceType, name: str) -> bool | None:
        """Return True if the ACLs allow an operation, False if not, None if the resource has no ACLs."""
        found = list(self._entries_of(kind, name))
        if not found:
            return None
        if _matches(found, user, host, (operation,), Permission.DENY):
            return False
        operations = (operation, *IMPLIED_BY.get(operation, ()))
        return _matches(found, user, host, operations, Permission.ALLOW)

    def allows_on_any(self, user: str, host: str, operation: AclOperation, kind: ResourceType) -> bool:
        """Return True if the ACLs allow an operation on at least one resource of a type (KIP-679)."""
        for resource, entries in self._all.items():
            if resource.type is not kind or not _matches([entries], user, host, (operation,), Permission.ALLOW):
                continue
            denying = list(self._entries_of(kind, resource.name))
            if not _matches(denying, user, host, (operation,), Permission.DENY):
                return True
        return False

    def _entries_of(self, kind: ResourceType, name: str) -> Iterator[frozenset[Acl]]:
        for literal in (name, WILDCARD):
            entries = self._literal.get((kind, literal))
            if entries:
                yield entries
        for prefix, entries in self._prefixed.get(kind, ()):
            if name.startswith(prefix):
                yield entries


def _matches(
    found: Iterable[Iterable[Acl]], user: str, host: str, operations: tuple[AclOperation, ...], permission: Permission
) -> bool:
    for entries in found:
        for acl in entries:
            if (
                acl.permission is permission
                and acl.principal in (user, ANY_USER)
                and acl.host in (host, WILDCARD)
                and (acl.operation is AclOperation.ALL or acl.operation in operations)
            ):
                return True
    return False
