"""The caller of a request to the admin API: its user, its address and its permissions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from twisted.web.server import Request

from kreplica.admin.http.problems import Problem
from kreplica.interfaces.authorization import ANONYMOUS, CLUSTER, Operation, Principal, Resource, ResourceType

LISTENER = "admin"
"""Name of the listener that authorizer plugins see for requests to the admin API."""

FORBIDDEN = 403


class Authorizer(Protocol):
    """Decides whether a request is authorized, by the same rules as for Kafka clients."""

    def permits(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Return True if the principal may perform the operation."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    :param user: such as ``User:alice``.
    :param host: address of the client.
    :param is_super: True if the caller may do everything, because it has the token.
    :param method: how the caller authenticated: ``none``, ``token``, ``basic``, ``certificate``,
        ``bearer`` or ``session``.
    :param session: identifies the caller's session; None without one.
    :param authorizer: decides what the caller may do; None if everyone may do everything.
    """

    user: str = ANONYMOUS
    host: str = ""
    is_super: bool = False
    method: str = "none"
    session: bytes | None = field(default=None, repr=False)
    authorizer: Authorizer | None = field(default=None, repr=False, compare=False)

    def may(self, operation: Operation, resource: Resource) -> bool:
        """Return True if the caller is authorized for an operation."""
        if self.is_super or self.authorizer is None:
            return True
        return self.authorizer.permits(Principal(self.user, self.host, LISTENER, None), operation, resource)

    def require(self, operation: Operation, resource: Resource) -> None:
        """Check that the caller is authorized for an operation.

        :raise Problem: 403.
        """
        if not self.may(operation, resource):
            raise self.denied(operation, resource)

    def denied(self, operation: Operation, resource: Resource) -> Problem:
        """Return the problem of an operation for which the caller is not authorized."""
        name = operation.value
        what = "the cluster" if resource == CLUSTER else f"{resource.type.value} {resource.name!r}"
        return Problem(
            FORBIDDEN,
            f"{resource.type.name}_AUTHORIZATION_FAILED",
            f"{self.user} from {self.host or 'an unknown address'} is not authorized for {name} on {what}",
            what_to_do="Ask an administrator for an ACL. GET /v1/why/access explains the decision.",
            members={
                "principal": self.user,
                "operation": name,
                "resource_type": resource.type.value,
                "resource_name": resource.name,
            },
        )


ANYONE = Caller()
"""A caller that is not authenticated, if no authentication is required."""


def caller_of(request: Request) -> Caller:
    """Return the caller that authentication attached to a request."""
    caller: Caller = getattr(request, "caller", ANYONE)
    return caller


def topic(name: str) -> Resource:
    """Return a topic as a resource."""
    return Resource(ResourceType.TOPIC, name)


def group(name: str) -> Resource:
    """Return a group as a resource."""
    return Resource(ResourceType.GROUP, name)


def user(principal: str) -> Resource:
    """Return a user, such as ``User:alice``, as a resource."""
    return Resource(ResourceType.USER, principal)
