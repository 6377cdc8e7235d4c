"""What a coordinator writes: records of one partition that this broker leads, and when they count.

The appends of one turn of the reactor's loop leave in one batch, so that thousands of small ones in a second cost
little; atomic appends are never cut in two.
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
from kreplica.wire.batch_building import BatchBuilder

if TYPE_CHECKING:
    from kreplica.replication.partition import Partition

log = Logger()

Pair = tuple[bytes, bytes | None]
"""Key and value of a record; None is a tombstone."""

AtEndOfTurn = Callable[[Callable[[], object]], None]
Committed = Callable[[], None]
Answer = Callable[[ErrorCode], None]

RECORD_OVERHEAD = 24
"""At most so many bytes does a record take beside its key and value."""

_NOT_HERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_OF_TRANSACTION = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE})


@dataclass(frozen=True, slots=True)
class StateLogConfig:
    """:param batch_bytes_max: what is gathered for one batch; a larger append has a batch of its own.
    :param timeout_s: how long an append may take until its answer is given up: ``offsets.commit.timeout.ms``.
    :param codec: a ``compression.Codec``: ``offsets.topic.compression.codec``.
    """

    batch_bytes_max: int = 512 * 1024
    timeout_s: float = 5.0
    codec: int = 0


class Appended(NamedTuple):
    """What waits to be written, or to be committed.

    :param end_offset: all below it have to be committed; -1 until it is written.
    """

    records: Sequence[Pair]
    committed: Committed
    answer: Answer


class _Written:
    """Appends that went into one batch."""

    __slots__ = ("appends", "deadline_s", "end_offset", "is_overdue")

    def __init__(self, appends: list[Appended], end_offset: int, deadline_s: float) -> None:
        self.appends = appends
        self.end_offset = end_offset
        self.deadline_s = deadline_s
        self.is_overdue = False


class StateLog:
    """Made when this broker begins to lead the partition, closed when it leads no more; owned by a ``Shards``.

    :param at_end_of_turn: calls back when the requests of this turn are handled, before their answers leave.
    :ivar partition: the partition's number.
    """

    def __init__(
        self, runtime: Runtime, partition: Partition, at_end_of_turn: AtEndOfTurn, config: StateLogConfig
    ) -> None:
        self.partition = partition.topic_partition.partition
        self._partition = partition
        self._tenures_over = partition.tenures_over
        self._runtime = runtime
        self._at_end_of_turn = at_end_of_turn
        self._config = config
        self._gathered: list[Appended] = []
        self._gathered_bytes = 0
        self._written: deque[_Written] = deque()
        self._refused: list[tuple[Answer, ErrorCode]] = []
        self._scheduled = False
        self._timer: IDelayedCall | None = None
        self.is_closed = False

    @property
    def epoch(self) -> int:
        """The leader epoch by which this broker coordinates."""
        return self._partition.leadership.leader_epoch

    def append(self, records: Sequence[Pair], committed: Committed, answer: Answer) -> None:
        """Append records, all of them or none.  Neither callback is called before this has returned.

        :param records: at least one.
        :param committed: called once they are committed, in the order of the log, also where the answer was given up;
            never where this broker ceased to lead before.
        :param answer: called exactly once: NONE, after ``committed``; COORDINATOR_NOT_AVAILABLE, refused, or not
            committed in time (it may be, later); NOT_COORDINATOR, this broker leads no more; MESSAGE_TOO_LARGE.
        """
        size = sum(len(key) + (len(value) if value is not None else 0) + RECORD_OVERHEAD for key, value in records)
        if self._gathered_bytes + size > self._config.batch_bytes_max:
            self._flush()
        self._gathered.append(Appended(records, committed, answer))
        self._gathered_bytes += size
        self._schedule()

    def append_transactional(
        self,
        producer_id: int,
        producer_epoch: int,
        records: Sequence[Pair],
        committed: Committed,
        answer: Answer,
    ) -> bool:
        """Append records as part of a producer's transaction, which its end marker decides; else as ``append``.

        :param answer: also INVALID_PRODUCER_EPOCH, the producer's epoch is not the last; INVALID_TXN_STATE, nobody
            has verified that the transaction is under way, or it has ended since.
        :return: whether the records are in the log now, so that a marker will follow them there.
        """
        self._flush()
        builder = BatchBuilder(
            codec=self._config.codec, producer_id=producer_id, producer_epoch=producer_epoch, transactional=True
        )
        is_written = self._write([Appended(records, committed, answer)], builder)
        self._schedule()
        return is_written

    # --- writing -----------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._at_end_of_turn(self._end_of_turn)

    def _end_of_turn(self) -> None:
        self._scheduled = False
        self._flush()
        refused, self._refused = self._refused, []
        for answer, code in refused:
            _call(answer, code)
        self._settle()

    def _flush(self) -> None:
        """Write what was gathered, as one batch; one append that is refused for its size takes no other with it."""
        gathered, self._gathered = self._gathered, []
        self._gathered_bytes = 0
        if gathered:
            self._write(gathered, BatchBuilder(codec=self._config.codec))

    def _write(self, appends: list[Appended], builder: BatchBuilder) -> bool:
        if self.is_closed:
            self._refuse(appends, ErrorCode.NOT_COORDINATOR)
            return False
        now_ms = self._runtime.wall_clock_ms()
        for append in appends:
            for key, value in append.records:
                builder.append(now_ms, key, value)
        try:
            result = self._partition.append_own(builder.build(), now_ms, in_transaction=builder.transactional)
        except KafkaError as error:
            if error.code in _TOO_LARGE and len(appends) > 1:
                for append in appends:
                    self._write([append], BatchBuilder(codec=self._config.codec))
            else:
                self._refuse(appends, _told(error))
            return False
        deadline_s = self._runtime.reactor.seconds() + self._config.timeout_s
        self._written.append(_Written(appends, result.last_offset + 1, deadline_s))
        self._partition.waiting[self] = None
        return True

    def _refuse(self, appends: list[Appended], code: ErrorCode) -> None:
        self._refused += [(append.answer, code) for append in appends]
        self._schedule()

    # --- what becomes of it ------------------------------------------------------------------------------------------

    def changed(self, partitions: object) -> None:
        """The partition's high watermark or role is another (see ``replication.waiting.Watcher``)."""
        self._settle()

    def _settle(self) -> None:
        """Tell those whose records are committed; where this broker leads no more, tell all."""
        if self.is_lost:
            self.close()
            return
        written = self._written
        high_watermark = self._partition.high_watermark
        while written and written[0].end_offset <= high_watermark:
            batch = written.popleft()
            for append in batch.appends:
                _call_committed(append)
                if not batch.is_overdue:
                    _call(append.answer, ErrorCode.NONE)
        if not written:
            self._partition.waiting.pop(self, None)
        elif self._timer is None:
            self._start_timer()

    @property
    def is_lost(self) -> bool:
        """Whether this broker has ceased to lead since this was made: what was written since may be gone."""
        return self._partition.led is None or self._partition.tenures_over != self._tenures_over

    def close(self) -> None:
        """This broker leads no more: answer all that waits; what comes later is refused."""
        if self.is_closed:
            return
        self.is_closed = True
        self._partition.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        written, self._written = self._written, deque()
        for batch in written:
            if not batch.is_overdue:
                self._refuse(batch.appends, ErrorCode.NOT_COORDINATOR)
        self._flush()

    def _start_timer(self) -> None:
        for batch in self._written:
            if not batch.is_overdue:
                delay_s = max(batch.deadline_s - self._runtime.reactor.seconds(), 0.0)
                self._timer = self._runtime.reactor.callLater(delay_s, self._overdue)
                return

    def _overdue(self) -> None:
        self._timer = None
        now_s = self._runtime.reactor.seconds()
        for batch in self._written:
            if batch.deadline_s <= now_s and not batch.is_overdue:
                batch.is_overdue = True
                for append in batch.appends:
                    _call(append.answer, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._written:
            self._start_timer()


def _told(error: KafkaError) -> ErrorCode:
    """What a client of a coordinator is told of an append that was refused."""
    if error.code in _NOT_HERE:
        return ErrorCode.NOT_COORDINATOR
    if error.code in _TOO_LARGE:
        return ErrorCode.MESSAGE_TOO_LARGE
    if error.code in _OF_TRANSACTION:
        return error.code
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


def _call_committed(append: Appended) -> None:
    try:
        append.committed()
    except Exception:
        log.failure("what a coordinator wrote cannot be applied")


def _call(answer: Answer, code: ErrorCode) -> None:
    try:
        answer(code)
    except Exception:
        log.failure("answering what a coordinator wrote")
