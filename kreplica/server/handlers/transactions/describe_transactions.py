"""DescribeTransactions (key 65): describes the transactions of transactional IDs."""

from __future__ import annotations

from typing import Any

from kreplica.errors import KafkaError
from kreplica.server.protocol.request import Request
from kreplica.transactions import TransactionCoordinator, by_topic


class DescribeTransactions:
    """Responds for the transactional IDs that this broker coordinates."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, request: Request) -> None:
        request.respond({"transaction_states": [self._row(each) for each in request.body["transactional_ids"]]})

    def _row(self, transactional_id: str) -> dict[str, Any]:
        try:
            transaction = self._coordinator.describe(transactional_id)
        except KafkaError as error:
            return {"error_code": int(error.code), "transactional_id": transactional_id}
        return {
            "error_code": 0,
            "transactional_id": transactional_id,
            "transaction_state": transaction.state.title,
            "transaction_timeout_ms": transaction.timeout_ms,
            "transaction_start_time_ms": transaction.start_ms,
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.producer_epoch,
            "topics": [
                {"topic": topic, "partitions": numbers} for topic, numbers in by_topic(transaction.partitions).items()
            ],
        }
