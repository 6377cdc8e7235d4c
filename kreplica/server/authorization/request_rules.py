"""Requests that are allowed or rejected as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kreplica.interfaces import CLUSTER, Operation, Resource
from kreplica.server.authorization.permissions import Permissions, code_of
from kreplica.server.protocol.request import Handler, Request

Row = dict[str, Any]
Requirement = tuple[Operation, Resource]


class RequestRule(NamedTuple):
    """Permissions that a request requires as a whole.

    :param requirements: returns the permissions that a request body requires; the first one denied is reported.
    :param rejection: builds the response from the body and the error code.
    """

    requirements: Callable[[Row], Sequence[Requirement]]
    rejection: Callable[[Row, int], Row]

    def guard(self, permissions: Permissions, handle: Handler) -> Handler:
        """Return a handler that checks permissions first."""

        def guarded(request: Request) -> None:
            for operation, resource in self.requirements(request.body):
                if not permissions.allows(request, operation, resource):
                    request.respond(self.rejection(request.body, code_of(resource)))
                    return
            handle(request)

        return guarded


def cluster(operation: Operation) -> Callable[[Row], Sequence[Requirement]]:
    """Require one operation on the cluster."""
    return lambda _: [(operation, CLUSTER)]


def only_code(_: Row, code: int) -> Row:
    """Build a response that contains only an error code."""
    return {"error_code": code}
