"""Authorization of requests by plugins."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from zope.interface import Interface


class Operation(Enum):
    """Operations, with Kafka's names."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster_action"
    DESCRIBE_CONFIGS = "describe_configs"
    ALTER_CONFIGS = "alter_configs"
    IDEMPOTENT_WRITE = "idempotent_write"
    CREATE_TOKENS = "create_tokens"
    DESCRIBE_TOKENS = "describe_tokens"

    __hash__ = object.__hash__  # members are compared by identity; the hash of Enum is a slow Python function


class ResourceType(Enum):
    """Types of resources, with Kafka's names."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional_id"
    DELEGATION_TOKEN = "delegation_token"
    USER = "user"

    __hash__ = object.__hash__  # as above


class Resource(NamedTuple):
    """A resource of the cluster.

    :param name: name of the topic or group; transactional ID; token ID; principal of the user, such as ``User:alice``;
        ``kafka-cluster``.
    """

    type: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")

ANONYMOUS = "User:ANONYMOUS"
"""User of clients that are not authenticated."""


class Principal(NamedTuple):
    """Sender of a request.

    :param user: ``User:ANONYMOUS`` unless the listener authenticates its clients.
    :param host: address of the client.
    :param listener: name of the listener that accepted the connection.
    :param client_id: as sent by the client; not authenticated.
    """

    user: str
    host: str
    listener: str
    client_id: str | None


class IAuthorizer(Interface):
    """Decides whether requests are authorized (``kreplica.authorizer``)."""

    def is_allowed(principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Return True if the operation is authorized.

        Called for each resource that a request names, before the request has any effect. If it raises, the operation
        is not authorized.
        """
