"""UpdateFeatures (key 57): rejected, because feature levels are fixed by the release."""

from __future__ import annotations

from collections.abc import Callable

from kreplica.errors import ErrorCode
from kreplica.server.protocol.request import Request


class UpdateFeatures:
    """Handles UpdateFeatures.

    :param is_controller: True if this broker is the active controller; others refuse the request.
    """

    def __init__(self, is_controller: Callable[[], bool]) -> None:
        self._is_controller = is_controller

    def __call__(self, request: Request) -> None:
        code, message = ErrorCode.INVALID_REQUEST, "Feature levels are fixed by the brokers' version."
        if not self._is_controller():
            code, message = ErrorCode.NOT_CONTROLLER, "This broker is not the active controller."
        request.respond({"error_code": int(code), "error_message": message, "results": []})
