"""A coordinator's appends to one partition that this broker leads, with callbacks when they are committed.

Appends from the same reactor iteration share a batch, so that thousands of small appends per second are cheap. The
records of one append are never split.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime import Runtime
from kreplica.storage.log_config import NO_LIMIT
from kreplica.storage.segments.batch_validation import ValidatedBatch
from kreplica.wire.batch_building import BatchBuilder
from kreplica.wire.batches import Bytes

if TYPE_CHECKING:
    from kreplica.replication.partition import Partition

log = Logger()

Pair = tuple[bytes, bytes | None]
"""Key and value of a record; the value is None for a tombstone."""

ProducerEpoch = tuple[int, int]
"""Producer ID and epoch."""

AtEndOfIteration = Callable[[Callable[[], object]], None]
Committed = Callable[[], None]
Respond = Callable[[ErrorCode], None]

RECORD_OVERHEAD = 24
"""Upper bound for the overhead of a record, in addition to its key and value, in bytes."""

_NOT_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_TRANSACTION_ERRORS = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE})


@dataclass(frozen=True, slots=True)
class StateLogConfig:
    """Settings of a state log.

    :param batch_bytes_max: maximum size of a shared batch; a larger append is written as a separate batch.
    :param timeout_s: time after which a pending append fails: ``offsets.commit.timeout.ms``.
    :param codec: a ``compression.Codec``: ``offsets.topic.compression.codec``.
    """

    batch_bytes_max: int = 512 * 1024
    timeout_s: float = 5.0
    codec: int = 0


class PendingAppend(NamedTuple):
    """An append that is waiting to be written or committed.

    :param records: empty if the batch already contains them.
    """

    records: Sequence[Pair]
    committed: Committed
    respond: Respond


class _WrittenBatch:
    """A batch that is waiting to be committed, with its appends."""

    __slots__ = ("appends", "deadline_s", "end_offset", "is_overdue")

    def __init__(self, appends: list[PendingAppend], end_offset: int, deadline_s: float) -> None:
        self.appends = appends
        self.end_offset = end_offset
        self.deadline_s = deadline_s
        self.is_overdue = False


class StateLog:
    """Appends records to one partition and calls back when they are committed; owned by ``Shards``.

    It is created when this broker becomes leader of the partition, and closed when it is no longer leader.

    :param at_end_of_iteration: schedules a callback after the requests of this reactor iteration and before responses
        are sent.
    :ivar partition: partition number.
    """

    def __init__(
        self, runtime: Runtime, partition: Partition, at_end_of_iteration: AtEndOfIteration, config: StateLogConfig
    ) -> None:
        self.partition = partition.topic_partition.partition
        self._partition = partition
        self._leadership_generation = partition.leadership_generation
        self._runtime = runtime
        self._at_end_of_iteration = at_end_of_iteration
        self._config = config
        self._gathered: list[PendingAppend] = []
        self._gathered_bytes = 0
        self._written: deque[_WrittenBatch] = deque()
        self._rejected: list[tuple[Respond, ErrorCode]] = []
        self._scheduled = False
        self._timer: IDelayedCall | None = None
        self.is_closed = False

    @property
    def epoch(self) -> int:
        """Leader epoch under which this broker coordinates."""
        return self._partition.leadership.leader_epoch

    def append(self, records: Sequence[Pair], committed: Committed, respond: Respond) -> None:
        """Append records atomically. No callback is called before this method has returned.

        :param records: at least one.
        :param committed: called once the records are committed, in log order, even if ``respond`` has already been
            called with an error; never called after this broker has lost leadership.
        :param respond: called exactly once: with NONE after ``committed``; with COORDINATOR_NOT_AVAILABLE if the append
            was rejected or not committed in time (it may be committed later); with NOT_COORDINATOR if leadership
            was lost; or with MESSAGE_TOO_LARGE.
        """
        size = sum(len(key) + (len(value) if value is not None else 0) + RECORD_OVERHEAD for key, value in records)
        if self._gathered_bytes + size > self._config.batch_bytes_max:
            self._flush()
        self._gathered.append(PendingAppend(records, committed, respond))
        self._gathered_bytes += size
        self._schedule()

    def new_batch(self, producer: ProducerEpoch | None = None) -> BatchBuilder:
        """Return an empty batch for ``append_batch``.

        :param producer: producer of the transaction to which the records belong; its marker commits or aborts them.
            None if the records are not transactional.
        """
        if producer is None:
            return BatchBuilder(codec=self._config.codec)
        producer_id, epoch = producer
        return BatchBuilder(
            codec=self._config.codec, producer_id=producer_id, producer_epoch=epoch, transactional=True
        )

    @property
    def batch_size_max(self) -> int:
        """Maximum size of a batch before compression."""
        return NO_LIMIT if self._config.codec else self._partition.log.config.append_size_max

    def append_batch(
        self, batch: BatchBuilder, committed: Committed, respond: Respond, records: Sequence[Pair] = ()
    ) -> bool:
        """Append a batch that is not shared with other appends; otherwise like ``append``.

        :param batch: from ``new_batch``; a caller with many records adds them in slices, because each takes 5 us.
        :param respond: as for ``append``; in a transaction also called with INVALID_PRODUCER_EPOCH if the producer is
            fenced, and with INVALID_TXN_STATE if the transaction has not been verified or has ended.
        :param records: added to the batch; at least one if the batch is empty.
        :return: True if the records are in the log, so that the marker of their transaction will follow them.
        """
        self._flush()
        is_written = self._write([PendingAppend(records, committed, respond)], batch, is_large=not records)
        self._schedule()
        return is_written

    # --- writing -----------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._at_end_of_iteration(self._end_of_iteration)

    def _end_of_iteration(self) -> None:
        self._scheduled = False
        self._flush()
        rejected, self._rejected = self._rejected, []
        for respond, code in rejected:
            self._call(respond, code)
        self._complete_committed()

    def _flush(self) -> None:
        """Write the collected appends as one batch, or one by one if the batch is too large for the log."""
        gathered, self._gathered = self._gathered, []
        self._gathered_bytes = 0
        if gathered:
            self._write(gathered, BatchBuilder(codec=self._config.codec))

    def _write(self, appends: list[PendingAppend], builder: BatchBuilder, *, is_large: bool = False) -> bool:
        if self.is_closed:
            self._reject(appends, ErrorCode.NOT_COORDINATOR)
            return False
        now_ms = self._runtime.wall_clock_ms()
        for append in appends:
            for key, value in append.records:
                builder.append(now_ms, key, value)
        batch: Bytes = builder.build()
        if is_large and not self._config.codec:
            batch = ValidatedBatch.built(batch, self._partition.log.config)
        try:
            result = self._partition.append_own(batch, now_ms, in_transaction=builder.transactional)
        except KafkaError as error:
            if error.code in _TOO_LARGE and len(appends) > 1:
                for append in appends:
                    self._write([append], BatchBuilder(codec=self._config.codec))
            else:
                self._reject(appends, _client_error(error))
            return False
        deadline_s = self._runtime.reactor.seconds() + self._config.timeout_s
        self._written.append(_WrittenBatch(appends, result.last_offset + 1, deadline_s))
        self._partition.add_watcher(self)
        return True

    def _reject(self, appends: list[PendingAppend], code: ErrorCode) -> None:
        self._rejected += [(append.respond, code) for append in appends]
        self._schedule()

    # --- results -----------------------------------------------------------------------------------------------------

    def changed(self, partitions: object) -> None:
        """The high watermark or the role of the partition has changed (see ``Watcher``)."""
        self._complete_committed()

    def _complete_committed(self) -> None:
        """Call the callbacks of committed appends; close if this broker is no longer leader."""
        if self.is_lost:
            self.close()
            return
        written = self._written
        high_watermark = self._partition.high_watermark
        while written and written[0].end_offset <= high_watermark:
            batch = written.popleft()
            for append in batch.appends:
                self._apply(append)
                if not batch.is_overdue:
                    self._call(append.respond, ErrorCode.NONE)
        if not written:
            self._partition.watchers.pop(self, None)
        elif self._timer is None:
            self._start_timer()

    @property
    def is_lost(self) -> bool:
        """True if this broker has lost leadership since this log was created, so that written records may be lost."""
        partition = self._partition
        return not partition.role.is_leader or partition.leadership_generation != self._leadership_generation

    def close(self) -> None:
        """Fail all pending appends with NOT_COORDINATOR and reject later ones."""
        if self.is_closed:
            return
        self.is_closed = True
        self._partition.watchers.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        written, self._written = self._written, deque()
        for batch in written:
            if not batch.is_overdue:
                self._reject(batch.appends, ErrorCode.NOT_COORDINATOR)
        self._flush()

    def _start_timer(self) -> None:
        for batch in self._written:
            if not batch.is_overdue:
                delay_s = max(batch.deadline_s - self._runtime.reactor.seconds(), 0.0)
                self._timer = self._runtime.reactor.callLater(delay_s, self._fail_overdue)
                return

    def _fail_overdue(self) -> None:
        self._timer = None
        now_s = self._runtime.reactor.seconds()
        for batch in self._written:
            if batch.deadline_s <= now_s and not batch.is_overdue:
                batch.is_overdue = True
                for append in batch.appends:
                    self._call(append.respond, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._written:
            self._start_timer()

    def _apply(self, append: PendingAppend) -> None:
        try:
            append.committed()
        except Exception:
            log.failure("cannot apply committed records of {partition}", partition=repr(self._partition))

    def _call(self, respond: Respond, code: ErrorCode) -> None:
        try:
            respond(code)
        except Exception:
            log.failure("the callback of an append to {partition} failed", partition=repr(self._partition))


def _client_error(error: KafkaError) -> ErrorCode:
    """Return the error that the coordinator's client receives for a rejected append."""
    if error.code in _NOT_LEADER:
        return ErrorCode.NOT_COORDINATOR
    if error.code in _TOO_LARGE:
        return ErrorCode.MESSAGE_TOO_LARGE
    if error.code in _TRANSACTION_ERRORS:
        return error.code
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
