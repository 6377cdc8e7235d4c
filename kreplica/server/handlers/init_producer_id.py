"""InitProducerId (key 22): an id for an idempotent producer."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode
from kreplica.membership.producer_ids import ProducerIds
from kreplica.server.answers import answer_from
from kreplica.server.request import Request
from kreplica.zookeeper import ZooKeeperError


class InitProducerId:
    """Transactional producers are told that their coordinator is not here: there are no transactions yet."""

    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    def __call__(self, request: Request) -> None:
        body = request.body
        transactional_id = body["transactional_id"]
        if (body.get("producer_id", -1) == -1) != (body.get("producer_epoch", -1) == -1):
            request.answer(_error(ErrorCode.INVALID_REQUEST))  # they come together or not at all (KIP-360)
        elif transactional_id is None:
            answer_from(request, self._next())
        elif transactional_id == "":
            request.answer(_error(ErrorCode.INVALID_REQUEST))
        else:
            request.answer(_error(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    async def _next(self) -> dict[str, Any]:
        try:
            producer_id = await self._producer_ids.next()
        except ZooKeeperError:
            # Retriable: ZooKeeper cannot be reached for the moment.
            return _error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}


def _error(code: ErrorCode) -> dict[str, Any]:
    return {"error_code": int(code), "producer_id": -1, "producer_epoch": -1}
