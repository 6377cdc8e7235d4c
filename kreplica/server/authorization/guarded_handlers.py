"""Adds permission checks to a table of handlers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kreplica.errors import ErrorCode
from kreplica.interfaces import CLUSTER, Operation, ResourceType
from kreplica.model import ZERO_UUID
from kreplica.server.authorization.add_partitions import guard_add_partitions
from kreplica.server.authorization.coordinators import guard_find_coordinator
from kreplica.server.authorization.create_topics import guard_created_topics
from kreplica.server.authorization.metadata import guard_metadata
from kreplica.server.authorization.offset_fetch import guard_offset_fetch
from kreplica.server.authorization.permissions import Permissions, group, topic, transactional_id
from kreplica.server.authorization.produce import guard_produce
from kreplica.server.authorization.rules import RULES
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.handler_table import HandlerEntry, HandlerTable
from kreplica.server.protocol.request import Handler, Request
from kreplica.wire import messages


def guarded(table: HandlerTable, permissions: Permissions, metadata: MetadataCache) -> HandlerTable:
    """Return a copy of the table, in which each handler checks permissions first."""
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
    elif key == messages.CREATE_TOPICS.key:
        handle = guard_created_topics(permissions, handle)
    elif key == messages.LIST_GROUPS.key:
        handle = _guard_list_groups(permissions, handle)
    elif key == messages.OFFSET_FETCH.key:
        handle = guard_offset_fetch(permissions, handle)
    elif key == messages.FIND_COORDINATOR.key:
        handle = guard_find_coordinator(permissions, handle)
    elif key == messages.ADD_PARTITIONS_TO_TXN.key:
        handle = guard_add_partitions(permissions, handle, metadata)
    elif key == messages.LIST_TRANSACTIONS.key:
        handle = _guard_list_transactions(permissions, handle)
    elif key == messages.DESCRIBE_TRANSACTIONS.key:
        handle = _guard_described_topics(permissions, handle)
    unguarded = handle
    for rule in reversed(RULES.get(key, ())):
        handle = rule.guard(permissions, handle)
    if key == messages.INIT_PRODUCER_ID.key:
        handle = _guard_idempotent_producers(permissions, unguarded, handle)
    return replace(entry, handle=handle, handle_run=None)


def _guard_idempotent_producers(permissions: Permissions, unguarded: Handler, guarded_: Handler) -> Handler:
    """Return an InitProducerId handler that accepts producers that may write to any topic (KIP-679)."""

    def handle(request: Request) -> None:
        is_idempotent = request.body["transactional_id"] is None
        if is_idempotent and permissions.allows_on_any(request, Operation.WRITE, ResourceType.TOPIC):
            unguarded(request)
        else:
            guarded_(request)

    return handle


def _guard_list_groups(permissions: Permissions, handle: Handler) -> Handler:
    """Return a ListGroups handler that lists only groups that the client may describe."""

    def guarded_(request: Request) -> None:
        if not permissions.would_allow(request, Operation.DESCRIBE, CLUSTER):

            def amend(response: dict[str, Any]) -> dict[str, Any]:
                rows = response["groups"]
                allowed = [
                    row for row in rows if permissions.would_allow(request, Operation.DESCRIBE, group(row["group_id"]))
                ]
                return {**response, "groups": allowed}

            request.amend_response(amend)
        handle(request)

    return guarded_


def _guard_list_transactions(permissions: Permissions, handle: Handler) -> Handler:
    """Return a ListTransactions handler that lists only transactional IDs that the client may describe."""

    def guarded_(request: Request) -> None:
        def amend(response: dict[str, Any]) -> dict[str, Any]:
            allowed = [
                row
                for row in response["transaction_states"]
                if permissions.would_allow(request, Operation.DESCRIBE, transactional_id(row["transactional_id"]))
            ]
            return {**response, "transaction_states": allowed}

        request.amend_response(amend)
        handle(request)

    return guarded_


def _guard_described_topics(permissions: Permissions, handle: Handler) -> Handler:
    """Return a DescribeTransactions handler whose responses contain only topics that the client may describe."""

    def guarded_(request: Request) -> None:
        def allowed(row: dict[str, Any]) -> dict[str, Any]:
            topics = [
                each
                for each in row.get("topics", ())
                if permissions.would_allow(request, Operation.DESCRIBE, topic(each["topic"]))
            ]
            return {**row, "topics": topics}

        def amend(response: dict[str, Any]) -> dict[str, Any]:
            return {**response, "transaction_states": [allowed(row) for row in response["transaction_states"]]}

        request.amend_response(amend)
        handle(request)

    return guarded_


def _guard_delete_topics(permissions: Permissions, handle: Handler, metadata: MetadataCache) -> Handler:
    """Return a DeleteTopics handler that checks permissions first, for requests with names, rows or topic IDs."""

    def guarded_(request: Request) -> None:
        body = request.body
        rejections = []
        for field in ("topic_names", "topics"):
            allowed = []
            for row in body.get(field) or ():
                name = row if field == "topic_names" else row["name"] or metadata.name_of(row["topic_id"])
                if name is None or permissions.allows(request, Operation.DELETE, topic(name)):
                    allowed.append(row)
                    continue
                by_id = field == "topics" and row["name"] is None
                rejections.append(
                    {
                        "name": None if by_id else name,
                        "topic_id": row["topic_id"] if by_id else ZERO_UUID,
                        "error_code": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
                        "error_message": None,
                    }
                )
            if field in body:
                body[field] = allowed
        if rejections:
            request.amend_response(lambda response: {**response, "responses": [*response["responses"], *rejections]})
        handle(request)

    return guarded_
