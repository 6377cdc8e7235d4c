"""What is known of the transactional ids of one partition of ``__transaction_state``: in memory what the log has.

A transition that was handed to the log is never taken back: until it is committed, or this broker coordinates no more,
it is written again and again, and nobody may decide anything else.  So no later decision can contradict one that is
committed after all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.coordination import Pair, StateLog
from kreplica.errors import ErrorCode
from kreplica.runtime import Runtime
from kreplica.transactions.delayed_requests import DelayedRequests
from kreplica.transactions.end_transaction import complete
from kreplica.transactions.records import decode_key, decode_value, encode_key, encode_value
from kreplica.transactions.states import COMPLETE, DECIDED, NEVER_MS, NO_TIME, S, Transaction
from kreplica.wire.batches import BatchHeader

log = Logger()

REWRITE_SECONDS = 0.5
"""After so long a transition that may not have reached the log is written again."""

Answered = Callable[[ErrorCode], None]


class MarkerWriting(Protocol):
    """Writes the markers of decided transactions (``markers.Markers``)."""

    def send(self, shard: TransactionShard, transaction: Transaction) -> None:
        """Write a transaction's markers; the shard's ``markers_written`` follows, unless it is forgotten."""

    def forget(self, shard: TransactionShard) -> None:
        """Write no more markers for a shard."""


class Entry:
    """One transactional id.

    :ivar transaction: as it is committed; None where nothing is yet.
    :ivar pending: what it is becoming; None where nothing is under way.
    :ivar since_s: when that transaction was committed, by the reactor's clock.
    :ivar began_s: when the transaction that is ongoing began, by the reactor's clock.
    """

    __slots__ = ("began_s", "pending", "since_s", "transaction", "transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.transaction: Transaction | None = None
        self.pending: Transaction | None = None
        self.since_s = 0.0
        self.began_s = 0.0

    @property
    def is_free(self) -> bool:
        """Whether anything may be decided: nothing is on its way to the log."""
        return self.pending is None

    @property
    def is_completing(self) -> bool:
        """Whether all that is under way is what follows from a decision."""
        if self.pending is not None:
            return self.pending.state in COMPLETE
        return self.transaction is not None and self.transaction.state in DECIDED

    def has_timed_out(self, now_s: float) -> bool:
        """Whether its producer has had its time, and a decision is not under way."""
        transaction = self.transaction
        return (
            transaction is not None
            and transaction.state is S.ONGOING
            and self.is_free
            and transaction.timeout_ms != NEVER_MS
            and now_s - self.began_s >= transaction.timeout_ms / 1000
        )


class TransactionShard:
    """A ``coordination.Shard``: made when this broker begins to lead the partition, and filled from its log.

    :ivar patience: requests that wait until a transaction is complete.
    """

    def __init__(self, runtime: Runtime, state_log: StateLog, markers: MarkerWriting) -> None:
        self._runtime = runtime
        self._log = state_log
        self._markers = markers
        self._entries: dict[str, Entry] = {}
        self._undone: dict[str, Transaction] = {}
        """While it is loaded: those that are decided, and whose markers may be missing."""
        self._unsure: dict[str, Transaction] = {}
        self._timer: IDelayedCall | None = None
        self.is_unloaded = False
        self.patience = DelayedRequests(runtime.reactor)

    @property
    def partition(self) -> int:
        """The partition's number."""
        return self._log.partition

    @property
    def epoch(self) -> int:
        """The coordinator's epoch, which its markers carry."""
        return self._log.epoch

    # --- loading -----------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, batch: BatchHeader) -> None:
        """The last record of a transactional id is what is known of it."""
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        transaction = None if value is None else decode_value(transactional_id, value)
        if transaction is None or transaction.state is S.DEAD:
            self._entries.pop(transactional_id, None)
            self._undone.pop(transactional_id, None)
            return
        if transaction.state is S.PREPARE_EPOCH_FENCE:
            # Nothing is decided: it goes on under an epoch that nobody was told of, until its time is up.
            transaction = replace(transaction, state=S.ONGOING)
        entry = self._entries.get(transactional_id)
        if entry is None:
            entry = self._entries[transactional_id] = Entry(transactional_id)
        now_s, now_ms = self._runtime.reactor.seconds(), self._runtime.wall_clock_ms()
        entry.transaction = transaction
        entry.since_s = now_s - _elapsed_s(transaction.last_update_ms, now_ms)
        entry.began_s = now_s - _elapsed_s(transaction.start_ms, now_ms)
        if transaction.state in DECIDED:
            self._undone[transactional_id] = transaction
        else:
            self._undone.pop(transactional_id, None)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Nothing here is written in transactions."""

    def loaded(self) -> None:
        """Go on with what the coordinator before this one has decided."""
        undone, self._undone = self._undone, {}
        for transaction in undone.values():
            self._markers.send(self, transaction)

    def unload(self) -> None:
        """Another coordinates now: it reads what was decided from the log."""
        self.is_unloaded = True
        self._unsure.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._markers.forget(self)
        self.patience.end_all()

    # --- reading -----------------------------------------------------------------------------------------------------

    def get(self, transactional_id: str) -> Entry | None:
        """What is known of a transactional id; None where that is nothing."""
        return self._entries.get(transactional_id)

    def entries(self) -> list[Entry]:
        """All that are known."""
        return list(self._entries.values())

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, new: Transaction, answered: Answered) -> None:
        """Have a transactional id become something else, once that is committed.

        :param new: nothing may be pending for that id; DEAD writes its tombstone.
        :param answered: called exactly once: NONE, it is committed; COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR, it
            may be, later; UNKNOWN_SERVER_ERROR, it is larger than any record may be, and nothing has changed.
        """
        entry = self._entries.get(new.transactional_id)
        if entry is None:
            entry = self._entries[new.transactional_id] = Entry(new.transactional_id)
        assert entry.is_free, f"{entry.pending} is pending"
        entry.pending = new
        self._append(entry, new, partial(self._told, entry, new, answered))

    def markers_written(self, transaction: Transaction) -> None:
        """All markers of a decided transaction are written."""
        entry = self._entries.get(transaction.transactional_id)
        if not self.is_unloaded and entry is not None and entry.transaction is transaction and entry.is_free:
            self.write(complete(transaction, self._runtime.wall_clock_ms()), _nobody_waits)

    def _append(self, entry: Entry, new: Transaction, answer: Answered) -> None:
        self._log.append([_record(new)], partial(self._committed, entry, new), answer)

    def _committed(self, entry: Entry, new: Transaction) -> None:
        if self.is_unloaded or entry.pending is not new:
            return  # it was written twice, and the first was committed before
        before, entry.transaction, entry.pending = entry.transaction, new, None
        self._unsure.pop(entry.transactional_id, None)
        now_s = self._runtime.reactor.seconds()
        entry.since_s = now_s
        if before is None or before.state is not S.ONGOING:
            entry.began_s = now_s
        if new.state is S.DEAD:
            del self._entries[entry.transactional_id]
        elif new.state in DECIDED:
            self._markers.send(self, new)
        elif new.state in COMPLETE:
            self.patience.end(entry.transactional_id)

    def _told(self, entry: Entry, new: Transaction, answered: Answered, code: ErrorCode) -> None:
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            self._take_back(entry, new)
            answered(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if code is not ErrorCode.NONE:
            self._write_again_later(entry, new)
        answered(code)

    def _take_back(self, entry: Entry, new: Transaction) -> None:
        """Nothing was written, and nothing will be."""
        if entry.pending is new:
            entry.pending = None
            if entry.transaction is None:
                self._entries.pop(entry.transactional_id, None)

    # --- writing again -----------------------------------------------------------------------------------------------

    def _write_again_later(self, entry: Entry, new: Transaction) -> None:
        if self.is_unloaded or entry.pending is not new:
            return
        self._unsure[entry.transactional_id] = new
        if self._timer is None:
            self._timer = self._runtime.reactor.callLater(REWRITE_SECONDS, self._write_again)

    def _write_again(self) -> None:
        self._timer = None
        unsure, self._unsure = self._unsure, {}
        for transactional_id, new in unsure.items():
            entry = self._entries[transactional_id]
            self._append(entry, new, partial(self._told_again, entry, new))

    def _told_again(self, entry: Entry, new: Transaction, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self._write_again_later(entry, new)


def _record(transaction: Transaction) -> Pair:
    key = encode_key(transaction.transactional_id)
    return key, None if transaction.state is S.DEAD else encode_value(transaction)


def _elapsed_s(since_ms: int, now_ms: int) -> float:
    """How long ago something was noted, as far as wall clocks of several brokers can tell; never in the future."""
    return 0.0 if since_ms == NO_TIME else max(now_ms - since_ms, 0) / 1000


def _nobody_waits(code: ErrorCode) -> None:
    """What the coordinator does by itself goes on by itself."""
