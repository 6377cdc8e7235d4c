"""Transactional ids of one partition of ``__transaction_state``: committed state and pending changes.

A transition that was passed to the log is never undone. Writing it is retried until it is committed or this broker
stops coordinating, and no other decision is made meanwhile. Therefore no later decision can contradict it.
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
from kreplica.transactions.memory_limits import ShardMemory, TransactionMemory, size_of, size_of_id
from kreplica.transactions.records import decode_key, decode_value, encode_key, encode_value
from kreplica.transactions.states import COMPLETE, DECIDED, NEVER_MS, NO_TIME, S, Transaction
from kreplica.wire.batches import BatchHeader

log = Logger()

REWRITE_SECONDS = 0.5
"""Delay before a transition whose write failed is written again."""

Respond = Callable[[ErrorCode], None]


class MarkerWriting(Protocol):
    """Writer of markers for decided transactions (``markers.Markers``)."""

    def send(self, shard: TransactionShard, transaction: Transaction) -> None:
        """Write a transaction's markers, then call the shard's ``markers_written`` unless the shard was forgotten."""

    def forget(self, shard: TransactionShard) -> None:
        """Stop writing markers for a shard."""


class Entry:
    """State of one transactional id.

    :ivar transaction: committed state; None if nothing is committed yet.
    :ivar pending: state being written; None if no write is in progress.
    :ivar since_s: reactor time at which ``transaction`` was last committed.
    :ivar started_s: reactor time at which the ongoing transaction started.
    :ivar address: client address to which its memory is charged; empty until its producer has started.
    :ivar held_bytes: memory charged for it.
    """

    __slots__ = ("address", "held_bytes", "pending", "since_s", "started_s", "transaction", "transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.transaction: Transaction | None = None
        self.pending: Transaction | None = None
        self.since_s = 0.0
        self.started_s = 0.0
        self.address = ""
        self.held_bytes = 0

    @property
    def is_free(self) -> bool:
        """True if no write is in progress, so that a decision is allowed."""
        return self.pending is None

    @property
    def is_completing(self) -> bool:
        """True if the only write in progress is the completion of a decided transaction."""
        if self.pending is not None:
            return self.pending.state in COMPLETE
        return self.transaction is not None and self.transaction.state in DECIDED

    def has_timed_out(self, now_s: float) -> bool:
        """Return True if the transaction timeout has passed and no decision is being written."""
        transaction = self.transaction
        return (
            transaction is not None
            and transaction.state is S.ONGOING
            and self.is_free
            and transaction.timeout_ms != NEVER_MS
            and now_s - self.started_s >= transaction.timeout_ms / 1000
        )


class TransactionShard:
    """A ``coordination.Shard``: created when this broker becomes leader of the partition, and filled from its log.

    :param memory: memory totals of the broker.
    :ivar delayed: requests delayed until a transaction is complete.
    """

    def __init__(
        self, runtime: Runtime, state_log: StateLog, markers: MarkerWriting, memory: TransactionMemory
    ) -> None:
        self._runtime = runtime
        self._memory = ShardMemory(memory)
        self._log = state_log
        self._markers = markers
        self._entries: dict[str, Entry] = {}
        self._unfinished: dict[str, Transaction] = {}
        """Decided transactions whose markers may be missing; used during loading."""
        self._to_rewrite: dict[str, Transaction] = {}
        self._timer: IDelayedCall | None = None
        self.is_unloaded = False
        self.delayed = DelayedRequests(runtime.reactor)

    @property
    def partition(self) -> int:
        """Partition number."""
        return self._log.partition

    @property
    def epoch(self) -> int:
        """Coordinator epoch for markers."""
        return self._log.epoch

    # --- loading -----------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, batch: BatchHeader) -> None:
        """Apply a record; the last record of a transactional id determines its state."""
        transactional_id = decode_key(key)
        if transactional_id is None:
            return
        transaction = None if value is None else decode_value(transactional_id, value)
        if transaction is None or transaction.state is S.DEAD:
            self._remove(transactional_id)
            self._unfinished.pop(transactional_id, None)
            return
        if transaction.state is S.PREPARE_EPOCH_FENCE:
            # Not decided: the transaction stays ongoing, under an epoch that no producer has, until it times out.
            transaction = replace(transaction, state=S.ONGOING)
        entry = self._entries.get(transactional_id)
        if entry is None:
            entry = self._entries[transactional_id] = Entry(transactional_id)
        now_s, now_ms = self._runtime.reactor.seconds(), self._runtime.wall_clock_ms()
        entry.transaction = transaction
        self._charge(entry, size_of(transaction))
        entry.since_s = now_s - _elapsed_s(transaction.last_update_ms, now_ms)
        entry.started_s = now_s - _elapsed_s(transaction.start_ms, now_ms)
        if transaction.state in DECIDED:
            self._unfinished[transactional_id] = transaction
        else:
            self._unfinished.pop(transactional_id, None)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Do nothing: no record of this topic is transactional."""

    def loaded(self) -> None:
        """Write the markers of transactions that a previous coordinator decided."""
        unfinished, self._unfinished = self._unfinished, {}
        for transaction in unfinished.values():
            self._markers.send(self, transaction)

    def unload(self) -> None:
        """Stop all writes and timers; the next coordinator reads the decisions from the log."""
        self.is_unloaded = True
        self._to_rewrite.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._markers.forget(self)
        self._memory.close()
        self.delayed.end_all()

    # --- reading -----------------------------------------------------------------------------------------------------

    def get(self, transactional_id: str) -> Entry | None:
        """Return the entry of a transactional id, or None."""
        return self._entries.get(transactional_id)

    def entries(self) -> list[Entry]:
        """Return all entries."""
        return list(self._entries.values())

    # --- memory ------------------------------------------------------------------------------------------------------

    def has_room(self, transactional_id: str, address: str, new: Transaction | None = None) -> bool:
        """Return True if the memory limits allow this state of a transactional id.

        :param address: address of the client that starts the producer; empty for other requests.
        :param new: the new state; None for a new id.
        """
        entry = self._entries.get(transactional_id)
        size = size_of_id(transactional_id) if new is None else size_of(new)
        if entry is None:
            return self._memory.has_room(address, size)
        return self._memory.has_room(entry.address, size - entry.held_bytes)

    def _charge(self, entry: Entry, size: int) -> None:
        self._memory.add(entry.address, size - entry.held_bytes)
        entry.held_bytes = size

    def _charge_to(self, entry: Entry, address: str) -> None:
        """Charge an id that was loaded from the log to the client that starts its producer."""
        if address and not entry.address:
            self._memory.add(entry.address, -entry.held_bytes)
            self._memory.add(address, entry.held_bytes)
            entry.address = address

    def _remove(self, transactional_id: str) -> None:
        entry = self._entries.pop(transactional_id, None)
        if entry is not None:
            self._charge(entry, 0)

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, new: Transaction, respond: Respond, address: str = "") -> None:
        """Write the next state of a transactional id; takes effect once it is committed.

        :param new: the next state; DEAD writes a tombstone. No write may be pending for this id.
        :param address: address of the client that starts the producer; empty for other changes.
        :param respond: called exactly once. NONE: committed. COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR: may be
            committed later. UNKNOWN_SERVER_ERROR: the record is too large, and nothing has changed.
        """
        entry = self._entries.get(new.transactional_id)
        if entry is None:
            entry = self._entries[new.transactional_id] = Entry(new.transactional_id)
        assert entry.is_free, f"{entry.pending} is pending"
        entry.pending = new
        self._charge_to(entry, address)
        self._charge(entry, max(entry.held_bytes, size_of(new)))
        self._append(entry, new, partial(self._write_done, entry, new, respond))

    def markers_written(self, transaction: Transaction) -> None:
        """Complete a decided transaction whose markers have all been written."""
        entry = self._entries.get(transaction.transactional_id)
        if not self.is_unloaded and entry is not None and entry.transaction is transaction and entry.is_free:
            self.write(complete(transaction, self._runtime.wall_clock_ms()), _ignore)

    def _append(self, entry: Entry, new: Transaction, respond: Respond) -> None:
        self._log.append([_record(new)], partial(self._committed, entry, new), respond)

    def _committed(self, entry: Entry, new: Transaction) -> None:
        if self.is_unloaded or entry.pending is not new:
            return  # the write was retried, and an earlier attempt has been committed
        before, entry.transaction, entry.pending = entry.transaction, new, None
        self._to_rewrite.pop(entry.transactional_id, None)
        now_s = self._runtime.reactor.seconds()
        entry.since_s = now_s
        if before is None or before.state is not S.ONGOING:
            entry.started_s = now_s
        self._charge(entry, size_of(new))
        if new.state is S.DEAD:
            self._remove(entry.transactional_id)
        elif new.state in DECIDED:
            self._markers.send(self, new)
        elif new.state in COMPLETE:
            self.delayed.end(entry.transactional_id)

    def _write_done(self, entry: Entry, new: Transaction, respond: Respond, code: ErrorCode) -> None:
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            self._discard(entry, new)
            respond(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if code is not ErrorCode.NONE:
            self._schedule_rewrite(entry, new)
        respond(code)

    def _discard(self, entry: Entry, new: Transaction) -> None:
        """Discard a change that cannot be written because its record is too large."""
        if entry.pending is new:
            entry.pending = None
            if entry.transaction is None:
                self._remove(entry.transactional_id)
            else:
                self._charge(entry, size_of(entry.transaction))

    # --- repeated writes ---------------------------------------------------------------------------------------------

    def _schedule_rewrite(self, entry: Entry, new: Transaction) -> None:
        if self.is_unloaded or entry.pending is not new:
            return
        self._to_rewrite[entry.transactional_id] = new
        if self._timer is None:
            self._timer = self._runtime.reactor.callLater(REWRITE_SECONDS, self._rewrite)

    def _rewrite(self) -> None:
        self._timer = None
        to_rewrite, self._to_rewrite = self._to_rewrite, {}
        for transactional_id, new in to_rewrite.items():
            entry = self._entries[transactional_id]
            self._append(entry, new, partial(self._rewrite_done, entry, new))

    def _rewrite_done(self, entry: Entry, new: Transaction, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self._schedule_rewrite(entry, new)


def _record(transaction: Transaction) -> Pair:
    key = encode_key(transaction.transactional_id)
    return key, None if transaction.state is S.DEAD else encode_value(transaction)


def _elapsed_s(since_ms: int, now_ms: int) -> float:
    """Return the seconds since a timestamp that another broker may have written; never negative."""
    return 0.0 if since_ms == NO_TIME else max(now_ms - since_ms, 0) / 1000


def _ignore(code: ErrorCode) -> None:
    """Ignore the result: no request waits for it, and the shard retries."""
