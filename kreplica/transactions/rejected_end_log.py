"""Logs rejected EndTxn requests with the state of their transaction, to explain fatal errors in producers."""

from __future__ import annotations

from twisted.logger import Logger

from kreplica.errors import ErrorCode
from kreplica.runtime import Reactor
from kreplica.transactions.end_transaction import EndRequest
from kreplica.transactions.shard import Entry
from kreplica.transactions.states import NO_IDENTITY

log = Logger()

INTERVAL_S = 1.0
LINES_PER_INTERVAL_MAX = 10

_RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Retriable errors, which are part of normal operation and are not logged."""


class RejectedEndLog:
    """Rate-limited log with at most ``LINES_PER_INTERVAL_MAX`` lines per interval; owned by a coordinator."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._interval_start_s = float("-inf")
        self._lines = 0

    def log_rejection(self, transactional_id: str, request: EndRequest, entry: Entry | None, code: ErrorCode) -> None:
        """Log an EndTxn that was rejected with a non-retriable error.

        :param entry: state of the transactional id; None if it is unknown.
        """
        if code is ErrorCode.NONE or code in _RETRIABLE:
            return
        now_s = self._reactor.seconds()
        if now_s - self._interval_start_s >= INTERVAL_S:
            if self._lines > LINES_PER_INTERVAL_MAX:
                log.info("{count} more EndTxn requests were rejected", count=self._lines - LINES_PER_INTERVAL_MAX)
            self._interval_start_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines > LINES_PER_INTERVAL_MAX:
            return
        transaction = entry.transaction if entry is not None else None
        current = transaction.client_identity if transaction is not None else NO_IDENTITY
        log.info(
            "EndTxn rejected with {code}: {transactional_id!r} is in state {state}, the client requested {requested}; "
            "producer id {claimed_id} epoch {claimed_epoch}, current id {current_id} epoch {current_epoch}, "
            "bumps epoch: {bumps_epoch}",
            code=code.name,
            transactional_id=transactional_id,
            state=transaction.state.title if transaction is not None else "unknown",
            requested="commit" if request.is_commit else "abort",
            claimed_id=request.claimed.producer_id,
            claimed_epoch=request.claimed.epoch,
            current_id=current.producer_id,
            current_epoch=current.epoch,
            bumps_epoch=request.bumps_epoch,
        )
