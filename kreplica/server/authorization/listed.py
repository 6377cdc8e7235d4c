"""Requests that name topics, groups and so on: what is refused is taken out, and answered beside the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kreplica.interfaces import CLUSTER, Operation, Resource
from kreplica.server.authorization.gate import Gate, code_of
from kreplica.server.authorization.rows import Refused
from kreplica.server.protocol.request import Handler, Request

Row = dict[str, Any]


class Listed(NamedTuple):
    """What each row of a request needs.

    :param asked: the request's field that lists the rows; None or an absent one asks for whatever there is.
    :param answered: the answer's.
    :param need: what a row needs; None for one that needs nothing.
    :param also: whoever may do this to the cluster may do it to all of them.
    """

    asked: str
    answered: str
    need: Callable[[Any], tuple[Operation, Resource] | None]
    refused: Refused
    also: Operation | None = None

    def guard(self, gate: Gate, handle: Handler) -> Handler:
        """The handler behind the gate."""

        def guarded(request: Request) -> None:
            refusals = self.take_out(gate, request)
            if refusals:
                request.amend_answer(lambda body: {**body, self.answered: [*body.get(self.answered, ()), *refusals]})
            handle(request)

        return guarded

    def take_out(self, gate: Gate, request: Request) -> list[Row]:
        """Leave what is allowed in the request; the rows that refuse the others."""
        rows = request.body.get(self.asked)
        if not rows or (self.also is not None and gate.allows(request, self.also, CLUSTER)):
            return []
        allowed, refusals = [], []
        for row in rows:
            need = self.need(row)
            if need is None or gate.allows(request, *need):
                allowed.append(row)
            else:
                refusals.append(self.refused(row, code_of(need[1])))
        request.body[self.asked] = allowed
        return refusals
