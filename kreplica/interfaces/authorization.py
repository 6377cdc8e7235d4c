"""Who may do what."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from zope.interface import Interface


class Operation(Enum):
    """What somebody wants to do; Kafka's words."""

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


class ResourceType(Enum):
    """What it is to be done to; Kafka's words."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional_id"


class Resource(NamedTuple):
    """``name`` is the topic's, the group's or the transactional id; the cluster's is ``kafka-cluster``."""

    type: ResourceType
    name: str


CLUSTER = Resource(ResourceType.CLUSTER, "kafka-cluster")


class Principal(NamedTuple):
    """Who asks.

    :param user: ``User:ANONYMOUS``, as long as listeners do not authenticate anybody.
    :param host: the address it comes from.
    :param listener: the name of the listener that it came in by.
    :param client_id: what it calls itself; anybody can.
    """

    user: str
    host: str
    listener: str
    client_id: str | None


class IAuthorizer(Interface):
    """Says who may do what (``kreplica.authorizer``)."""

    def is_allowed(principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Whether this may be done.

        Called for each request, and each topic, group and so on that it names, before anything is done.
        Where it raises: it may not be done.
        """
