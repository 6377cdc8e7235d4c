"""Checks FindCoordinator requests: each key needs the permission to describe its group or transactional ID."""

from __future__ import annotations

from typing import Any

from kreplica.interfaces import Operation
from kreplica.server.authorization.permissions import Permissions, code_of, group, transactional_id
from kreplica.server.protocol.request import Handler, Request

_TRANSACTIONAL = 1
Row = dict[str, Any]


def guard_find_coordinator(permissions: Permissions, handle: Handler) -> Handler:
    """Return a handler that checks permissions first."""

    def guarded(request: Request) -> None:
        body = request.body
        make = transactional_id if body.get("key_type", 0) == _TRANSACTIONAL else group
        allowed: list[str] = []
        rejections: list[Row] = []
        for key in body["coordinator_keys"] if "coordinator_keys" in body else [body["key"]]:
            resource = make(key)
            if permissions.allows(request, Operation.DESCRIBE, resource):
                allowed.append(key)
            else:
                rejections.append(_rejection(key, code_of(resource)))
        if "coordinator_keys" not in body:
            if rejections:
                request.respond(rejections[0])
                return
        elif rejections:
            body["coordinator_keys"] = allowed
            request.amend_response(lambda answer: {**answer, "coordinators": [*rejections, *answer["coordinators"]]})
        handle(request)

    return guarded


def _rejection(key: str, code: int) -> Row:
    return {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": None}
