"""Hides the settings of new topics (KIP-525) from clients that may create them but not describe their settings."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode
from kreplica.interfaces import Operation
from kreplica.model import ZERO_UUID
from kreplica.server.authorization.permissions import Permissions, topic
from kreplica.server.protocol.request import Handler, Request

CONFIGS_FROM = 5
"""First version whose response contains the settings."""

Row = dict[str, Any]
_HIDDEN: Row = {
    "topic_id": ZERO_UUID,
    "topic_config_error_code": int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    "num_partitions": -1,
    "replication_factor": -1,
    "configs": [],
}


def guard_created_topics(permissions: Permissions, handle: Handler) -> Handler:
    """Return a handler whose responses describe only topics whose settings the client may describe."""

    def guarded(request: Request) -> None:
        if request.version >= CONFIGS_FROM:

            def visible(row: Row) -> Row:
                is_visible = permissions.would_allow(request, Operation.DESCRIBE_CONFIGS, topic(row["name"]))
                return row if is_visible else {**row, **_HIDDEN}

            request.amend_response(lambda body: {**body, "topics": [visible(row) for row in body["topics"]]})
        handle(request)

    return guarded
