"""Requests that are allowed or refused as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from kreplica.interfaces import CLUSTER, Operation, Resource
from kreplica.server.authorization.gate import Gate, code_of
from kreplica.server.protocol.request import Handler, Request

Row = dict[str, Any]
Need = tuple[Operation, Resource]


class Whole(NamedTuple):
    """Everything that a request needs.

    :param needs: of a request's body; the first that is refused is told.
    :param refusal: the answer, given the body and the code.
    """

    needs: Callable[[Row], Sequence[Need]]
    refusal: Callable[[Row, int], Row]

    def guard(self, gate: Gate, handle: Handler) -> Handler:
        """The handler behind the gate."""

        def guarded(request: Request) -> None:
            for operation, resource in self.needs(request.body):
                if not gate.allows(request, operation, resource):
                    request.answer(self.refusal(request.body, code_of(resource)))
                    return
            handle(request)

        return guarded


def cluster(operation: Operation) -> Callable[[Row], Sequence[Need]]:
    """One operation on the cluster itself."""
    return lambda _: [(operation, CLUSTER)]


def only_code(_: Row, code: int) -> Row:
    """An answer that has a code for all of it, and nothing else that counts."""
    return {"error_code": code}
