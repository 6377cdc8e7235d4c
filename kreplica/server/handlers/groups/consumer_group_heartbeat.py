"""ConsumerGroupHeartbeat (key 68): lets a member join a KIP-848 group, stay in it, get its assignment, and leave."""

from __future__ import annotations

from typing import Any

from kreplica.errors import KafkaError
from kreplica.groups.consumer.assignment import to_rows
from kreplica.groups.consumer.requests import read_heartbeat
from kreplica.groups.consumer_coordinator import ConsumerCoordinator
from kreplica.server.handlers.groups.join_group import client_host
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_with_result


class ConsumerGroupHeartbeat:
    """Responds when the new state of the group is committed."""

    def __init__(self, groups: ConsumerCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request))

    async def _response(self, request: Request) -> dict[str, Any]:
        heartbeat = read_heartbeat(request.body, request.client_id, client_host(request))
        try:
            response = await self._groups.heartbeat(heartbeat, request.version)
        except KafkaError as error:
            return {"error_code": int(error.code), "error_message": error.message or None}
        assignment = None if response.assignment is None else {"topic_partitions": to_rows(response.assignment)}
        return {
            "throttle_time_ms": 0,
            "error_code": 0,
            "error_message": None,
            "member_id": response.member_id,
            "member_epoch": response.member_epoch,
            "heartbeat_interval_ms": 0 if heartbeat.is_leaving else self._groups.heartbeat_interval_ms,
            "assignment": assignment,
        }
