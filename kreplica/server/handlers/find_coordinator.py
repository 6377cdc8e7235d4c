"""FindCoordinator (key 10): who coordinates a group or a transaction; nobody does yet."""

from __future__ import annotations

from kreplica.errors import ErrorCode
from kreplica.server.request import Request

BATCHED_FROM = 4
MESSAGE = "this broker coordinates no groups or transactions yet"


def find_coordinator(request: Request) -> None:
    """Answer COORDINATOR_NOT_AVAILABLE, which clients take for "not yet"."""
    nobody = {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        "error_message": MESSAGE,
    }
    if request.version >= BATCHED_FROM:
        request.answer({"coordinators": [nobody | {"key": key} for key in request.body["coordinator_keys"]]})
    else:
        request.answer(nobody)
