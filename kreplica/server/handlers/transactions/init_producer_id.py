"""InitProducerId (key 22): assigns a producer ID, or the next epoch of a transactional producer."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode
from kreplica.membership.producer_ids import ProducerIds
from kreplica.server.handlers.groups.join_group import client_host
from kreplica.server.handlers.transactions.transaction_codes import fenced_code
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_with_result
from kreplica.transactions import Identity, InitRequest, ProducerResponse, TransactionCoordinator
from kreplica.zookeeper import ZooKeeperError

PRODUCER_FENCED_VERSION_MIN = 4


class InitProducerId:
    """Delegates transactional IDs to the transaction coordinator; assigns a producer ID to other producers."""

    def __init__(self, producer_ids: ProducerIds, coordinator: TransactionCoordinator) -> None:
        self._producer_ids = producer_ids
        self._coordinator = coordinator

    def __call__(self, request: Request) -> None:
        body = request.body
        transactional_id = body["transactional_id"]
        claimed = Identity(body.get("producer_id", -1), body.get("producer_epoch", -1))
        if (claimed.producer_id == -1) != (claimed.epoch == -1):
            request.respond(_error(ErrorCode.INVALID_REQUEST))  # either both are set or neither (KIP-360)
        elif transactional_id is None:
            respond_with_result(request, self._next())
        elif transactional_id == "":
            request.respond(_error(ErrorCode.INVALID_REQUEST))
        else:
            init = InitRequest(
                body["transaction_timeout_ms"],
                claimed,
                body.get("enable_2pc", False),
                body.get("keep_prepared_txn", False),
                client_host(request),
            )
            self._coordinator.begin(transactional_id, init, lambda response: request.respond(_row(response, request)))

    async def _next(self) -> dict[str, Any]:
        try:
            producer_id = await self._producer_ids.next()
        except ZooKeeperError:
            # Retriable: ZooKeeper is currently unreachable.
            return _error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}


def _row(response: ProducerResponse, request: Request) -> dict[str, Any]:
    return {
        "error_code": fenced_code(response.code, is_known=request.version >= PRODUCER_FENCED_VERSION_MIN),
        "producer_id": response.identity.producer_id,
        "producer_epoch": response.identity.epoch,
        "ongoing_txn_producer_id": response.ongoing.producer_id,
        "ongoing_txn_producer_epoch": response.ongoing.epoch,
    }


def _error(code: ErrorCode) -> dict[str, Any]:
    return {"error_code": int(code), "producer_id": -1, "producer_epoch": -1}
