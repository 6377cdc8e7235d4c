"""AllocateProducerIds (key 67): assigns a block of producer IDs to an Apache Kafka broker of the cluster (KIP-730).

kreplica's brokers allocate their blocks directly in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kreplica.cluster import znodes
from kreplica.errors import ErrorCode
from kreplica.membership.producer_ids import ProducerIds
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_with_result
from kreplica.zookeeper import NoNode, ZooKeeperClient


class AllocateProducerIds:
    """Handles AllocateProducerIds.

    :param is_controller: True if this broker is the active controller; other brokers reject the request.
    """

    def __init__(self, client: ZooKeeperClient, producer_ids: ProducerIds, is_controller: Callable[[], bool]) -> None:
        self._client = client
        self._producer_ids = producer_ids
        self._is_controller = is_controller

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request.body["broker_id"], request.body["broker_epoch"]))

    async def _response(self, broker_id: int, broker_epoch: int) -> dict[str, Any]:
        if not self._is_controller():
            return _rejection(ErrorCode.NOT_CONTROLLER)
        try:
            _, registered = await self._client.get_data(znodes.broker_path(broker_id))
        except NoNode:
            return _rejection(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if registered.czxid != broker_epoch:
            return _rejection(ErrorCode.STALE_BROKER_EPOCH)
        block = await self._producer_ids.allocate(broker_id)
        return {
            "error_code": 0,
            "producer_id_start": block.first,
            "producer_id_len": block.last - block.first + 1,
        }


def _rejection(code: ErrorCode) -> dict[str, Any]:
    return {"error_code": int(code), "producer_id_start": 0, "producer_id_len": 0}
