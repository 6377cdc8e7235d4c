"""ListTransactions (key 66): lists the transactional IDs that this broker coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kreplica.errors import KafkaError
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_with_result
from kreplica.transactions import NO_TIME, STATES_BY_TITLE, Transaction, TransactionCoordinator

NO_DURATION = -1
"""Value of the duration filter that selects all transactions."""


class ListTransactions:
    """Lists the transactions that this broker coordinates; clients query every broker."""

    def __init__(
        self, reactor: Reactor, coordinator: TransactionCoordinator, wall_clock_ms: Callable[[], int]
    ) -> None:
        self._reactor = reactor
        self._coordinator = coordinator
        self._wall_clock_ms = wall_clock_ms

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._list(request.body))

    async def _list(self, body: dict[str, Any]) -> dict[str, Any]:
        unknown = [title for title in body["state_filters"] if title not in STATES_BY_TITLE]
        try:
            transactions = self._coordinator.transactions()
        except KafkaError as error:
            return {"error_code": int(error.code), "unknown_state_filters": unknown}
        matches = self._filter(body)
        rows = []
        time_slice = TimeSlice(self._reactor)
        for transaction in transactions:
            if matches(transaction):
                rows.append(_row(transaction))
            if time_slice.is_over:
                await time_slice.next()
        return {"error_code": 0, "unknown_state_filters": unknown, "transaction_states": rows}

    def _filter(self, body: dict[str, Any]) -> Callable[[Transaction], bool]:
        titles = frozenset(body["state_filters"])
        producer_ids = frozenset(body["producer_id_filters"])
        duration_ms = body.get("duration_filter", NO_DURATION)
        now_ms = self._wall_clock_ms()

        def matches(transaction: Transaction) -> bool:
            if titles and transaction.state.title not in titles:
                return False
            if producer_ids and transaction.producer_id not in producer_ids:
                return False
            if duration_ms < 0:
                return True
            return transaction.start_ms != NO_TIME and now_ms - transaction.start_ms > duration_ms

        return matches


def _row(transaction: Transaction) -> dict[str, Any]:
    return {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "transaction_state": transaction.state.title,
    }
