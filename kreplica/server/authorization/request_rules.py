"""Requests that are allowed or rejected as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kreplica.interfaces import CLUSTER, Operation, Resource
from kreplica.server.authorization.permissions import Permissions, code_of
from kreplica.server.protocol.request import Handler, Request

Row = dict[str, Any]
Need = tuple[Operation, Resource]


class RequestRule(NamedTuple):
    """Describes what a whole request needs.

    :param needs: returns the needs of a request body; the first rejected one is reported.
    :param rejection: builds the response from the body and the error code.
    """

    needs: Callable[[Row], Sequence[Need]]
    rejection: Callable[[Row, int], Row]

    def guard(self, permissions: Permissions, handle: Handler) -> Handler:
        """Return a handler that checks permissions first."""

        def guarded(request: Request) -> None:
            for operation, resource in self.needs(request.body):
                if not permissions.allows(request, operation, resource):
                    request.respond(self.rejection(request.body, code_of(resource)))
                    return
            handle(request)

        return guarded


def cluster(operation: Operation) -> Callable[[Row], Sequence[Need]]:
    """Require one operation on the cluster."""
    return lambda _: [(operation, CLUSTER)]


def only_code(_: Row, code: int) -> Row:
    """Build a response that only has an error code."""
    return {"error_code": code}
