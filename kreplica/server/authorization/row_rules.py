"""Checks requests row by row: rejected rows are removed and get an error row in the response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kreplica.interfaces import CLUSTER, Operation, Resource
from kreplica.server.authorization.error_rows import ErrorRowBuilder
from kreplica.server.authorization.permissions import Permissions, code_of
from kreplica.server.protocol.request import Handler, Request

Row = dict[str, Any]


class RowRule(NamedTuple):
    """Permission that each row of a request requires.

    :param request_field: the request field with the rows; if it is null or absent, all rows are requested.
    :param response_field: the response field with the rows.
    :param requirement: returns the permission that a row requires, or None.
    :param error_row: builds the response row of a rejected row.
    :param cluster_operation: an operation on the cluster that authorizes all rows.
    """

    request_field: str
    response_field: str
    requirement: Callable[[Any], tuple[Operation, Resource] | None]
    error_row: ErrorRowBuilder
    cluster_operation: Operation | None = None

    def guard(self, permissions: Permissions, handle: Handler) -> Handler:
        """Return a handler that checks permissions first."""

        def guarded(request: Request) -> None:
            rejections = self.remove_rejected(permissions, request)
            if rejections:
                field = self.response_field
                request.amend_response(lambda body: {**body, field: [*body.get(field, ()), *rejections]})
            handle(request)

        return guarded

    def remove_rejected(self, permissions: Permissions, request: Request) -> list[Row]:
        """Remove rejected rows from the request; return their error rows."""
        rows = request.body.get(self.request_field)
        operation = self.cluster_operation
        if not rows or (operation is not None and permissions.would_allow(request, operation, CLUSTER)):
            return []
        allowed, rejections = [], []
        for row in rows:
            requirement = self.requirement(row)
            if requirement is None or permissions.allows(request, *requirement):
                allowed.append(row)
            else:
                rejections.append(self.error_row(row, code_of(requirement[1])))
        request.body[self.request_field] = allowed
        return rejections
