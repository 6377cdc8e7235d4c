"""FindCoordinator (key 10): who coordinates a group or a transaction; nobody does yet."""

from __future__ import annotations

from twisted.logger import Logger

from kreplica.errors import ErrorCode
from kreplica.server.request import Request

log = Logger()

BATCHED_FROM = 4
MESSAGE = "this broker coordinates no groups or transactions yet"


class FindCoordinator:
    """Answers COORDINATOR_NOT_AVAILABLE, which clients take for "not yet", and tells whoever runs the broker once."""

    def __init__(self) -> None:
        self._told = False

    def __call__(self, request: Request) -> None:
        if not self._told:
            self._told = True
            log.warn(
                "client {client} asks for a coordinator, which waits for ever: consumer groups and transactions are "
                "not there yet (assign partitions instead of subscribing, and commit nothing)",
                client=request.client_id,
            )
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
