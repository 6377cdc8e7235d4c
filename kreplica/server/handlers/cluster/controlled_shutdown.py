"""ControlledShutdown (key 7): asks the controller to move leadership away from a broker that is shutting down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_with_result

Row = dict[str, Any]

RequestShutdown = Callable[[int, int], Deferred[list[TopicPartition]]]
"""Requests the controlled shutdown of the broker with this ID and epoch from the controller.

Fires with the partitions that the broker still leads, or fails with a ``KafkaError``.
"""


class ControlledShutdown:
    """Handles ControlledShutdown.

    :param request_shutdown: fails with NOT_CONTROLLER if this broker is not the controller.
    """

    def __init__(self, request_shutdown: RequestShutdown) -> None:
        self._request_shutdown = request_shutdown

    def __call__(self, request: Request) -> None:
        request.connection.mark_control()
        respond_with_result(request, self._response(request.body))

    async def _response(self, body: Row) -> Row:
        try:
            still_led = await self._request_shutdown(body["broker_id"], body.get("broker_epoch", -1))
        except KafkaError as error:
            return {"error_code": int(error.code), "remaining_partitions": []}
        rows = [{"topic_name": topic, "partition_index": partition} for topic, partition in still_led]
        return {"error_code": int(ErrorCode.NONE), "remaining_partitions": rows}
