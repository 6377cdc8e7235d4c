"""A log of committed offsets whose appends tests commit one by one, and Kafka's rule for effective offsets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kreplica.errors import ErrorCode
from kreplica.groups.offsets import Offsets, OffsetValues
from kreplica.groups.records import CommittedOffset, OffsetKey, build_offset_value, parse_offset_key, parse_offset_value
from kreplica.wire.batch_building import BatchBuilder
from kreplica.wire.batches import parse_header

if TYPE_CHECKING:
    from kreplica.coordination.state_log import Pair, StateLog

NOT_TRANSACTIONAL = -1


class LogEntry(NamedTuple):
    """Records of one append, or a transaction marker if there are none."""

    producer_id: int
    records: Sequence[Pair]
    commits: bool = False


class SteppedLog:
    """``StateLog`` whose appends are committed or rejected by the test, in order."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.waiting: deque[tuple[Callable[[], None], Callable[[ErrorCode], None]]] = deque()
        self.rejected: list[Callable[[ErrorCode], None]] = []
        self.rejects = False

    def append(
        self, records: Sequence[Pair], committed: Callable[[], None], answer: Callable[[ErrorCode], None]
    ) -> None:
        self._write(LogEntry(NOT_TRANSACTIONAL, records), committed, answer)

    def new_batch(self, producer: tuple[int, int]) -> BatchBuilder:
        return BatchBuilder(producer_id=producer[0], producer_epoch=producer[1], transactional=True)

    def append_batch(
        self,
        batch: BatchBuilder,
        committed: Callable[[], None],
        answer: Callable[[ErrorCode], None],
        records: Sequence[Pair],
    ) -> bool:
        return self._write(LogEntry(batch.producer_id, records), committed, answer)

    def _write(self, entry: LogEntry, committed: Callable[[], None], answer: Callable[[ErrorCode], None]) -> bool:
        if self.rejects:
            self.rejected.append(answer)
            return False
        self.entries.append(entry)
        self.waiting.append((committed, answer))
        return True

    def commit(self, count: int | None = None) -> None:
        """Commit the first ``count`` pending appends, by default all."""
        for _ in range(len(self.waiting) if count is None else count):
            committed, answer = self.waiting.popleft()
            committed()
            answer(ErrorCode.NONE)


@dataclass
class OffsetsScene:
    """Offsets, their log, and the error codes of responses."""

    log: SteppedLog = field(default_factory=SteppedLog)
    answers: list[ErrorCode] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.offsets = Offsets(cast("StateLog", self.log))

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        self.offsets.commit(group, values(topic, partition, offset), self.answers.append)

    def commit_in_transaction(self, producer_id: int, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = values(topic, partition, offset)
        self.offsets.commit_in_transaction(group, offsets, (producer_id, 0), self.answers.append)

    def end(self, producer_id: int, *, commits: bool) -> None:
        """End a transaction: commit all pending appends and write its marker."""
        self.log.commit()
        self.log.entries.append(LogEntry(producer_id, (), commits))
        self.offsets.end_transaction(producer_id, commits)

    def remove(self, group: str) -> None:
        records = self.offsets.tombstones(group)
        if records:
            self.offsets.remove(records, self.answers.append)

    def offset(self, group: str, topic: str, partition: int) -> int | None:
        committed = self.offsets.committed(group, topic, partition)
        return committed.offset if committed is not None else None

    def all_offsets(self) -> dict[OffsetKey, int]:
        return all_offsets(self.offsets)

    def replay(self) -> Offsets:
        """Return the offsets that a broker loads from the log."""
        offsets = Offsets(cast("StateLog", SteppedLog()))
        for producer_id, records, commits in self.log.entries:
            if records:
                header = header_of(producer_id, records)
                for key, value in records:
                    offsets.replay(key, value, header)
            else:
                offsets.end_transaction(producer_id, commits)
        return offsets


def values(topic: str, partition: int, offset: int) -> OffsetValues:
    return [(topic, [(partition, build_offset_value(CommittedOffset(offset, -1, "", 0)))])]


def all_offsets(offsets: Offsets) -> dict[OffsetKey, int]:
    found = {}
    for group in offsets.group_ids():
        for topic, partitions in offsets.partitions_of(group):
            for partition in partitions:
                committed = offsets.committed(group, topic, partition)
                assert committed is not None
                found[OffsetKey(group, topic, partition)] = committed.offset
    return found


def header_of(producer_id: int, records: Sequence[Pair]) -> Any:
    if producer_id == NOT_TRANSACTIONAL:
        builder = BatchBuilder()
    else:
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, transactional=True)
    for key, value in records:
        builder.append(0, key, value)
    return parse_header(builder.build())


def effective_offsets(entries: Sequence[LogEntry]) -> dict[OffsetKey, int]:
    """Return the effective offsets of a log: for each key, the valid record at the highest position.

    A tombstone supersedes earlier records, even those whose transaction commits after the tombstone.
    """
    latest: dict[OffsetKey, tuple[int, int | None]] = {}
    open_records: dict[int, list[tuple[int, OffsetKey, int]]] = {}

    def put(position: int, key: OffsetKey, offset: int | None) -> None:
        if key not in latest or latest[key][0] < position:
            latest[key] = (position, offset)

    for position, (producer_id, records, commits) in enumerate(entries):
        for data, value in records:
            key = parse_offset_key(data)
            if value is None:
                put(position, key, None)
            elif producer_id == NOT_TRANSACTIONAL:
                put(position, key, parse_offset_value(value).offset)
            else:
                open_records.setdefault(producer_id, []).append((position, key, parse_offset_value(value).offset))
        if not records:
            for record in open_records.pop(producer_id, []):
                if commits:
                    put(*record)
    return {key: offset for key, (_, offset) in latest.items() if offset is not None}
