"""Aborts transactions that exceed their timeout and removes unused transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import ErrorCode
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.runtime.time_slice import TimeSlice
from kreplica.transactions.config import TransactionsConfig
from kreplica.transactions.end_transaction import aborted_by_fence, removed
from kreplica.transactions.shard import Entry, TransactionShard
from kreplica.transactions.states import INACTIVE

log = Logger()


class Timeouts:
    """Checks all shards periodically.

    Durations are measured with the reactor's clock, so that a change of the wall clock does not abort or remove
    anything.

    :param shards: returns the loaded shards.
    """

    def __init__(
        self, runtime: Runtime, shards: Callable[[], Iterable[TransactionShard]], config: TransactionsConfig
    ) -> None:
        self._runtime = runtime
        self._shards = shards
        self._config = config
        self._running: list[Deferred[None]] = []

    def start(self) -> None:
        """Start the timers."""
        for interval_ms, check in (
            (self._config.abort_interval_ms, self._abort_if_timed_out),
            (self._config.expiration_interval_ms, self._remove_if_unused),
        ):
            running = Deferred.fromCoroutine(self._check_forever(interval_ms / 1000, check))
            running.addErrback(_log_failure)
            self._running.append(running)

    def stop(self) -> None:
        """Cancel the timers."""
        for running in self._running:
            running.cancel()
        self._running.clear()

    async def _check_forever(self, interval_s: float, check: Callable[[TransactionShard, Entry], None]) -> None:
        while True:
            await pause(self._runtime.reactor, interval_s)
            time_slice = TimeSlice(self._runtime.reactor)
            for shard in self._shards():
                for entry in shard.entries():
                    if time_slice.is_over:
                        await time_slice.next()
                    check(shard, entry)

    def _abort_if_timed_out(self, shard: TransactionShard, entry: Entry) -> None:
        transaction = entry.transaction
        if transaction is None or not entry.has_timed_out(self._runtime.reactor.seconds()) or shard.is_unloaded:
            return
        log.info(
            "aborting the transaction of {transactional_id!r}: its timeout of {timeout_ms} ms has passed",
            transactional_id=entry.transactional_id,
            timeout_ms=transaction.timeout_ms,
        )
        shard.write(aborted_by_fence(transaction, self._runtime.wall_clock_ms()), _ignore)

    def _remove_if_unused(self, shard: TransactionShard, entry: Entry) -> None:
        transaction = entry.transaction
        unused_s = self._runtime.reactor.seconds() - entry.since_s
        if (
            transaction is not None
            and transaction.state in INACTIVE
            and entry.is_free
            and unused_s >= self._config.expiration_ms / 1000
            and not shard.is_unloaded
        ):
            shard.write(removed(transaction), _ignore)


def _ignore(code: ErrorCode) -> None:
    """Ignore the result: the shard retries, or another broker is coordinator by now."""


def _log_failure(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("checking transaction timeouts failed", failure)
