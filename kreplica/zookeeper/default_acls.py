"""ACLs of the znodes that a client creates without an explicit ACL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from kreplica.zookeeper.operations import Create, Operation
from kreplica.zookeeper.records import OPEN_ACL, Acl

AclOf: TypeAlias = Callable[[str], tuple[Acl, ...]]
"""Returns the ACL of a new znode for its path, which does not include the chroot."""


def with_default_acls(operations: Sequence[Operation], acl_of: AclOf) -> list[Operation]:
    """Return the operations of a multi, with the default ACL in place of ``OPEN_ACL`` in each create."""
    return [
        each._replace(acl=acl_of(each.path)) if isinstance(each, Create) and each.acl is OPEN_ACL else each
        for each in operations
    ]
