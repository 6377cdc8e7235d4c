"""EndTxn (key 26): commits or aborts a producer's transaction."""

from __future__ import annotations

from kreplica.server.handlers.transactions.transaction_codes import fenced_code
from kreplica.server.protocol.request import Request
from kreplica.transactions import EndRequest, Identity, ProducerResponse, TransactionCoordinator

PRODUCER_FENCED_VERSION_MIN = 2

BUMPS_EPOCH_FROM = 5
"""First version whose response contains the producer epoch of the next transaction (KIP-890)."""


class EndTxn:
    """Responds when the decision is in the log; the markers are written afterwards."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, request: Request) -> None:
        body = request.body
        claimed = Identity(body["producer_id"], body["producer_epoch"])
        end = EndRequest(claimed, body["committed"], bumps_epoch=request.version >= BUMPS_EPOCH_FROM)

        def respond(response: ProducerResponse) -> None:
            request.respond(
                {
                    "error_code": fenced_code(response.code, is_known=request.version >= PRODUCER_FENCED_VERSION_MIN),
                    "producer_id": response.identity.producer_id,
                    "producer_epoch": response.identity.epoch,
                }
            )

        self._coordinator.end(body["transactional_id"], end, respond)
