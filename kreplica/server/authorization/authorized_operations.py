"""Operations that a client may perform on a resource, as a bit field (KIP-430)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kreplica.interfaces import CLUSTER, Operation, Resource, ResourceType
from kreplica.server.authorization.permissions import Permissions, group, topic
from kreplica.server.protocol.request import Request

NOT_REQUESTED = -(2**31)
"""Value of the field if the client did not request operations, and in rows with an error."""

_CODES = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
}
"""Kafka's codes of ACL operations, used as bit numbers."""

SUPPORTED: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""The operations that exist for each type of resource in Kafka 3.9."""


def bit_field(operations: Iterable[Operation]) -> int:
    """Return a bit field with one bit for each operation."""
    return sum(1 << _CODES[operation] for operation in operations)


_ALL = {kind: bit_field(operations) for kind, operations in SUPPORTED.items()}


class AuthorizedOperations:
    """Computes the authorized operations of clients.

    :param permissions: queries the authorizer; None if every client may do everything.
    """

    def __init__(self, permissions: Permissions | None) -> None:
        self._permissions = permissions

    def on_topic(self, request: Request, name: str) -> int:
        """Return the allowed operations on a topic."""
        return self._on(request, topic(name))

    def on_group(self, request: Request, name: str) -> int:
        """Return the allowed operations on a group."""
        return self._on(request, group(name))

    def on_cluster(self, request: Request) -> int:
        """Return the allowed operations on the cluster; none for a client without permission to describe it."""
        operations = self._on(request, CLUSTER)
        return operations if operations & bit_field([Operation.DESCRIBE]) else 0

    def _on(self, request: Request, resource: Resource) -> int:
        permissions = self._permissions
        if permissions is None:
            return _ALL[resource.type]
        return bit_field(each for each in SUPPORTED[resource.type] if permissions.would_allow(request, each, resource))
