"""Checks Produce requests: batches for forbidden topics are rejected, all others are appended."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.interfaces import Operation
from kreplica.server.authorization.permissions import Permissions, topic, transactional_id
from kreplica.server.produce.delayed_produce import NO_RESPONSE
from kreplica.server.produce.results import error_row
from kreplica.server.protocol.request import Handler, Request

Row = dict[str, Any]


def guard_produce(permissions: Permissions, handle: Handler) -> Handler:
    """Return a handler that checks permissions first."""

    def guarded(request: Request) -> None:
        body = request.body
        transaction = body.get("transactional_id")
        if transaction is not None and not permissions.allows(request, Operation.WRITE, transactional_id(transaction)):
            rejected, code = body["topic_data"], ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        else:
            rejected = [
                row
                for row in body["topic_data"]
                if not permissions.allows(request, Operation.WRITE, topic(row["name"]))
            ]
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not rejected:
            handle(request)
            return
        rows = _rows(rejected, code)
        body["topic_data"] = [row for row in body["topic_data"] if row not in rejected]
        if body["acks"] == NO_RESPONSE:
            # With acks=0 there is no response, so the connection is closed, as for any error of such a request.
            handle(request)
            request.abort(f"produce with acks=0 failed: {code.name}")
            return
        request.amend_response(lambda response: {**response, "responses": [*response["responses"], *rows]})
        handle(request)

    return guarded


def _rows(rejected: list[Row], code: ErrorCode) -> list[Row]:
    return [
        {
            "name": row["name"],
            "partition_responses": [error_row(data["index"], KafkaError(code)) for data in row["partition_data"]],
        }
        for row in rejected
    ]
