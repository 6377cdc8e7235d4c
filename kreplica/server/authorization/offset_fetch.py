"""Checks permissions of OffsetFetch: for each group and each topic."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode
from kreplica.interfaces import Operation
from kreplica.server.authorization.permissions import Permissions, group, topic
from kreplica.server.protocol.request import Handler, Request

Row = dict[str, Any]

BATCHED_FROM = 8
"""First version with several groups."""

GROUP_ERRORS_FROM = 2
"""First version with an error code for the group."""

_GROUP_REJECTED, _TOPIC_REJECTED = (
    int(code) for code in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
)


def guard_offset_fetch(permissions: Permissions, handle: Handler) -> Handler:
    """Return a handler that checks permissions first.

    Rejected groups and topics get an error. If a client requests all offsets of a group, topics that it may not
    describe are left out.
    """

    def guarded(request: Request) -> None:
        body, is_batched = request.body, request.version >= BATCHED_FROM
        allowed: list[Row] = []
        rejected_groups: list[Row] = []
        rejected_topics: dict[str, list[Row]] = {}
        unfiltered: set[str] = set()
        for row in body["groups"] if is_batched else [body]:
            name = row["group_id"]
            if not permissions.allows(request, Operation.DESCRIBE, group(name)):
                rejected_groups.append({"group_id": name, "topics": [], "error_code": _GROUP_REJECTED})
                continue
            allowed.append(row)
            if row["topics"] is None:
                unfiltered.add(name)
            else:
                rejected_topics[name] = _remove_rejected(permissions, request, row)

        def amended(name: str, row: Row) -> Row:
            topics = row["topics"]
            if name in unfiltered:
                topics = [
                    each for each in topics if permissions.would_allow(request, Operation.DESCRIBE, topic(each["name"]))
                ]
            return {**row, "topics": [*topics, *rejected_topics.get(name, ())]}

        if is_batched:
            body["groups"] = allowed
            request.amend_response(
                lambda response: {
                    **response,
                    "groups": [*(amended(row["group_id"], row) for row in response["groups"]), *rejected_groups],
                }
            )
            handle(request)
        elif allowed:
            request.amend_response(lambda response: amended(body["group_id"], response))
            handle(request)
        else:
            topics = [] if request.version >= GROUP_ERRORS_FROM else [
                _rejected_row(each, _GROUP_REJECTED) for each in body["topics"]
            ]
            request.respond({"topics": topics, "error_code": _GROUP_REJECTED})

    return guarded


def _remove_rejected(permissions: Permissions, request: Request, row: Row) -> list[Row]:
    """Remove rejected topics from the request of a group; return their error rows."""
    allowed, rejected = [], []
    for each in row["topics"]:
        if permissions.allows(request, Operation.DESCRIBE, topic(each["name"])):
            allowed.append(each)
        else:
            rejected.append(_rejected_row(each, _TOPIC_REJECTED))
    row["topics"] = allowed
    return rejected


def _rejected_row(row: Row, code: int) -> Row:
    partitions = [
        {"partition_index": number, "committed_offset": -1, "metadata": "", "error_code": code}
        for number in row["partition_indexes"]
    ]
    return {"name": row["name"], "partitions": partitions}
