"""``/v1/groups``: the groups that this broker coordinates, and how far each is behind."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.web.http import NOT_FOUND, OK, SERVICE_UNAVAILABLE
from twisted.web.iweb import IRequest

from kreplica.errors import ErrorCode, KafkaError

MISDIRECTED_REQUEST = 421

_STATUS = {
    ErrorCode.GROUP_ID_NOT_FOUND: NOT_FOUND,
    # RFC 9110: this server is not the one to ask.
    ErrorCode.NOT_COORDINATOR: MISDIRECTED_REQUEST,
}

Document = dict[str, Any]


class Groups(Protocol):
    """What a broker says of the groups that it coordinates."""

    async def listed(self) -> Document:
        """All of them, by ``groups``."""

    async def lag_of(self, group_id: str) -> Document:
        """How far a group is behind, in all and by partition.

        :raise KafkaError: GROUP_ID_NOT_FOUND; NOT_COORDINATOR, whose message names the broker to be asked; or one that
            asks for patience.
        """


class GroupsApp:
    """Answers are JSON; what goes wrong is a problem document (RFC 9457)."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def listed(self, request: IRequest) -> Deferred[bytes]:
        """``/v1/groups``."""
        return Deferred.fromCoroutine(_answered(request, self._groups.listed()))

    def lag(self, request: IRequest, group_id: str) -> Deferred[bytes]:
        """``/v1/groups/{group}/lag``."""
        return Deferred.fromCoroutine(_answered(request, self._groups.lag_of(group_id)))


async def _answered(request: IRequest, document: Awaitable[Document]) -> bytes:
    try:
        return _written(request, OK, "application/json", await document)
    except KafkaError as error:
        status = _STATUS.get(error.code, SERVICE_UNAVAILABLE)
        problem = {"title": error.code.name, "status": status, "instance": request.uri.decode(errors="replace")}
        if error.message:
            problem["detail"] = error.message
        return _written(request, status, "application/problem+json", problem)


def _written(request: IRequest, status: int, content_type: str, document: Document) -> bytes:
    request.setResponseCode(status)
    request.setHeader(b"content-type", content_type.encode())
    request.setHeader(b"cache-control", b"no-store")
    return json.dumps(document).encode() + b"\n"
