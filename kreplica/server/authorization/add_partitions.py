"""Checks AddPartitionsToTxn requests, which add all their partitions or none."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode
from kreplica.interfaces import CLUSTER, Operation
from kreplica.server.authorization.permissions import Permissions, code_of, topic, transactional_id
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Handler, Request

Row = dict[str, Any]


def guard_add_partitions(permissions: Permissions, handle: Handler, metadata: MetadataCache) -> Handler:
    """Return a handler that checks permissions first.

    Version 4 and later are sent by brokers, on behalf of clients that they have already authorized.
    """

    def guarded(request: Request) -> None:
        body = request.body
        if "transactions" in body:
            if permissions.allows(request, Operation.CLUSTER_ACTION, CLUSTER):
                handle(request)
            else:
                request.respond({"error_code": code_of(CLUSTER), "results_by_transaction": []})
            return
        topics = body["v3_and_below_topics"]
        own = transactional_id(body["v3_and_below_transactional_id"])
        if not permissions.allows(request, Operation.WRITE, own):
            codes = [code_of(own)] * len(topics)
        else:
            codes = [_code(permissions, request, row["name"], metadata) for row in topics]
            if int(ErrorCode.TOPIC_AUTHORIZATION_FAILED) not in codes:
                handle(request)
                return
        rows = [_rejection(row, code) for row, code in zip(topics, codes, strict=True)]
        request.respond({"results_by_topic_v3_and_below": rows})

    return guarded


def _code(permissions: Permissions, request: Request, name: str, metadata: MetadataCache) -> int:
    """Return the error code of a topic when at least one topic of the request is rejected."""
    if not permissions.allows(request, Operation.WRITE, topic(name)):
        return int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    exists = name in metadata.topics
    return int(ErrorCode.OPERATION_NOT_ATTEMPTED if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _rejection(row: Row, code: int) -> Row:
    partitions = [{"partition_index": number, "partition_error_code": code} for number in row["partitions"]]
    return {"name": row["name"], "results_by_partition": partitions}
