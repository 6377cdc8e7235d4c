"""Adds permission checks to a table of handlers."""

from __future__ import annotations

from dataclasses import replace

from kreplica.errors import ErrorCode
from kreplica.interfaces import Operation
from kreplica.model import ZERO_UUID
from kreplica.server.authorization.metadata import guard_metadata
from kreplica.server.authorization.permissions import Permissions, topic
from kreplica.server.authorization.produce import guard_produce
from kreplica.server.authorization.rules import RULES
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.handler_table import HandlerEntry, HandlerTable
from kreplica.server.protocol.request import Handler, Request
from kreplica.wire import messages


def guarded(table: HandlerTable, permissions: Permissions, metadata: MetadataCache) -> HandlerTable:
    """Return the same table; each handler checks permissions first."""
    return {key: _entry(entry, permissions, metadata) for key, entry in table.items()}


def _entry(entry: HandlerEntry, permissions: Permissions, metadata: MetadataCache) -> HandlerEntry:
    handle = entry.handle
    key = entry.api.key
    if key == messages.PRODUCE.key:
        handle = guard_produce(permissions, handle)
    elif key == messages.METADATA.key:
        handle = guard_metadata(permissions, handle, metadata)
    elif key == messages.DELETE_TOPICS.key:
        handle = _guard_delete_topics(permissions, handle, metadata)
    for rule in reversed(RULES.get(key, ())):
        handle = rule.guard(permissions, handle)
    return replace(entry, handle=handle, handle_run=None)


def _guard_delete_topics(permissions: Permissions, handle: Handler, metadata: MetadataCache) -> Handler:
    """Return a DeleteTopics handler that checks permissions first, for requests with names, rows or topic IDs."""

    def guarded_(request: Request) -> None:
        body = request.body
        refusals = []
        for field in ("topic_names", "topics"):
            allowed = []
            for row in body.get(field) or ():
                name = row if field == "topic_names" else row["name"] or metadata.name_of(row["topic_id"])
                if name is None or permissions.allows(request, Operation.DELETE, topic(name)):
                    allowed.append(row)
                    continue
                by_id = field == "topics" and row["name"] is None
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refusals.append(
                    {
                        "name": None if by_id else name,
                        "topic_id": row["topic_id"] if by_id else ZERO_UUID,
                        "error_code": int(code),
                        "error_message": None,
                    }
                )
            if field in body:
                body[field] = allowed
        if refusals:
            request.amend_response(lambda response: {**response, "responses": [*response["responses"], *refusals]})
        handle(request)

    return guarded_
