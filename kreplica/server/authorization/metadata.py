"""Checks Metadata requests: a forbidden topic is rejected if the request names it, otherwise left out."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode
from kreplica.interfaces import CLUSTER, Operation
from kreplica.model import ZERO_UUID
from kreplica.server.authorization.permissions import Permissions, topic
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Handler, Request
from kreplica.wire.messages import METADATA
from kreplica.wire.primitives import PrebuiltElements

Row = dict[str, Any]


def guard_metadata(permissions: Permissions, handle: Handler, metadata: MetadataCache) -> Handler:
    """Return a handler that checks permissions first."""

    def guarded(request: Request) -> None:
        body = request.body
        requested = body["topics"]
        rejections: list[Row] = []
        if requested is None or (request.version == 0 and not requested):
            visible = [n for n in sorted(metadata.topics) if permissions.allows(request, Operation.DESCRIBE, topic(n))]
            if not visible and request.version == 0:
                request.amend_response(_without_topics)  # an empty list would request all topics
            else:
                body["topics"] = [{"name": name, "topic_id": ZERO_UUID} for name in visible]
                body["allow_auto_topic_creation"] = False
        else:
            body["topics"] = [row for row in requested if _is_allowed(permissions, request, row, metadata, rejections)]
        if rejections and not body["topics"] and request.version == 0:
            request.amend_response(_without_topics)
        if rejections:
            request.amend_response(lambda response: _with_rows(request.version, response, rejections))
        handle(request)

    return guarded


def _is_allowed(
    permissions: Permissions, request: Request, row: Row, metadata: MetadataCache, rejections: list[Row]
) -> bool:
    name, topic_id = metadata.requested_topic(row, request.version)
    if name is None:
        return True
    by_id = topic_id != ZERO_UUID
    if not permissions.allows(request, Operation.DESCRIBE, topic(name)):
        # The name of a topic that the client may not describe stays hidden.
        rejections.append(_rejection(None if by_id else name, topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return False
    creates = request.body.get("allow_auto_topic_creation", True) and name not in metadata.topics
    if creates and not _may_create(permissions, request, name):
        rejections.append(_rejection(name, ZERO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return False
    return True


def _may_create(permissions: Permissions, request: Request, name: str) -> bool:
    return any(permissions.allows(request, Operation.CREATE, resource) for resource in (CLUSTER, topic(name)))


def _rejection(name: str | None, topic_id: Any, code: ErrorCode) -> Row:
    return {"error_code": int(code), "name": name, "topic_id": topic_id, "is_internal": False, "partitions": []}


def _without_topics(response: Row) -> Row:
    return {**response, "topics": PrebuiltElements(0, ())}


def _with_rows(version: int, response: Row, rows: list[Row]) -> Row:
    build = METADATA.response.element(version, "topics")
    built: PrebuiltElements = response["topics"]
    return {**response, "topics": PrebuiltElements(built.count + len(rows), [*built.pieces, *map(build, rows)])}
