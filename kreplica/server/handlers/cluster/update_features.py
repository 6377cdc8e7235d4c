"""UpdateFeatures (key 57): rejected, because feature levels are fixed by the release."""

from __future__ import annotations

from collections.abc import Callable

from kreplica.errors import ErrorCode
from kreplica.server.protocol.request import Request

FIXED = "Feature levels are fixed by the brokers' version."


class UpdateFeatures:
    """Handles UpdateFeatures.

    :param is_controller: True if this broker is the active controller; other brokers reject the request.
    """

    def __init__(self, is_controller: Callable[[], bool]) -> None:
        self._is_controller = is_controller

    def __call__(self, request: Request) -> None:
        if not self._is_controller():
            code, message = int(ErrorCode.NOT_CONTROLLER), "This broker is not the active controller."
            request.respond({"error_code": code, "error_message": message, "results": []})
            return
        rejected = {"error_code": int(ErrorCode.INVALID_REQUEST), "error_message": FIXED}
        rows = [{"feature": row["feature"], **rejected} for row in request.body["feature_updates"]]
        request.respond({"error_code": 0, "error_message": None, "results": rows})
