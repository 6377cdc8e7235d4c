"""What happens by itself: transactions that take too long are aborted, transactional ids that nobody uses forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import ErrorCode
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.runtime.turns import Turns
from kreplica.transactions.config import TransactionsConfig
from kreplica.transactions.end_transaction import aborted_by_fence, forgotten
from kreplica.transactions.shard import Entry, TransactionShard
from kreplica.transactions.states import AT_REST

log = Logger()


class Timeouts:
    """Looks through all shards from time to time.

    Elapsed time is the reactor's: a wall clock that is set aborts and forgets nothing.

    :param shards: those that are loaded, at the time.
    """

    def __init__(
        self, runtime: Runtime, shards: Callable[[], Iterable[TransactionShard]], config: TransactionsConfig
    ) -> None:
        self._runtime = runtime
        self._shards = shards
        self._config = config
        self._running: list[Deferred[None]] = []

    def start(self) -> None:
        """Begin to look."""
        for interval_ms, look_at in (
            (self._config.abort_interval_ms, self._abort),
            (self._config.expiration_interval_ms, self._forget),
        ):
            running = Deferred.fromCoroutine(self._look(interval_ms / 1000, look_at))
            running.addErrback(_ended)
            self._running.append(running)

    def stop(self) -> None:
        """Leave no timer behind."""
        for running in self._running:
            running.cancel()
        self._running.clear()

    async def _look(self, interval_s: float, look_at: Callable[[TransactionShard, Entry], None]) -> None:
        while True:
            await pause(self._runtime.reactor, interval_s)
            turns = Turns(self._runtime.reactor)
            for shard in self._shards():
                for entry in shard.entries():
                    if turns.is_over:
                        await turns.next()
                    look_at(shard, entry)

    def _abort(self, shard: TransactionShard, entry: Entry) -> None:
        transaction = entry.transaction
        if transaction is None or not entry.has_timed_out(self._runtime.reactor.seconds()) or shard.is_unloaded:
            return
        log.info(
            "aborting the transaction of {transactional_id!r}: it has lasted for {timeout_ms} ms",
            transactional_id=entry.transactional_id,
            timeout_ms=transaction.timeout_ms,
        )
        shard.write(aborted_by_fence(transaction, self._runtime.wall_clock_ms()), _goes_on)

    def _forget(self, shard: TransactionShard, entry: Entry) -> None:
        transaction = entry.transaction
        unused_s = self._runtime.reactor.seconds() - entry.since_s
        if (
            transaction is not None
            and transaction.state in AT_REST
            and entry.is_free
            and unused_s >= self._config.expiration_ms / 1000
            and not shard.is_unloaded
        ):
            shard.write(forgotten(transaction), _goes_on)


def _goes_on(code: ErrorCode) -> None:
    """What could not be written is written again by the shard; what another coordinates now is that one's."""


def _ended(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("looking for transactions that take too long", failure)
