"""Asks the authorizer whether the client of a request may perform an operation."""

from __future__ import annotations

from collections.abc import Callable

from kreplica.errors import ErrorCode
from kreplica.interfaces import CLUSTER, IAuthorizer, Operation, Principal, Resource, ResourceType
from kreplica.server.protocol.principals import principal_of
from kreplica.server.protocol.request import Request

_CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def group(name: str) -> Resource:
    return Resource(ResourceType.GROUP, name)


def transactional_id(name: str) -> Resource:
    return Resource(ResourceType.TRANSACTIONAL_ID, name)


def code_of(resource: Resource) -> int:
    """Return the error code for a request that is not authorized for this resource."""
    return int(_CODES[resource.type])


class Permissions:
    """Authorizes requests to one broker.

    :param on_failed: called inside the ``except`` block with a description of the check, if the authorizer raises.
    """

    def __init__(self, authorizer: IAuthorizer, on_failed: Callable[[str], object]) -> None:
        self._authorizer = authorizer
        self._on_failed = on_failed
        self.rejections = 0

    def allows(self, request: Request, operation: Operation, resource: Resource) -> bool:
        """Return True if the client of a request is authorized; False if it is not, or if the authorizer raises."""
        allowed = self.permits(principal_of(request.connection, request.client_id), operation, resource)
        self.rejections += not allowed
        return allowed

    def would_allow(self, request: Request, operation: Operation, resource: Resource) -> bool:
        """Like ``allows``, but a denial is not counted as a rejection."""
        return self.permits(principal_of(request.connection, request.client_id), operation, resource)

    def permits(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Return True if a principal is authorized; False if it is not, or if the authorizer raises."""
        try:
            return bool(self._authorizer.is_allowed(principal, operation, resource))
        except Exception:
            subject = f"{resource.type.value} {resource.name}"
            self._on_failed(f"checking whether {principal.host} may {operation.value} {subject}")
            return False

    def allows_on_any(self, request: Request, operation: Operation, kind: ResourceType) -> bool:
        """Return True if the client is authorized on at least one resource of a type; optional for plugins."""
        check = getattr(self._authorizer, "is_allowed_on_any", None)
        return check is not None and bool(check(principal_of(request.connection, request.client_id), operation, kind))

    def may_read(self, request: Request) -> Callable[[str], bool]:
        """Return a predicate for the names of topics that a consumer may read."""
        return lambda name: self.allows(request, Operation.READ, topic(name))

    def may_replicate(self, request: Request) -> bool:
        """Return True if the client may read all topics as a follower."""
        return self.allows(request, Operation.CLUSTER_ACTION, CLUSTER)
