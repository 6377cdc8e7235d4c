"""Checks one segment batch by batch: checksums, order, epochs, transactions and indexes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from kreplica.errors import KafkaError, ProtocolError
from kreplica.model import NO_EPOCH
from kreplica.runtime.disk import Disk
from kreplica.storage.formats.leader_epochs import EpochEntry
from kreplica.storage.inspection.files import batches, offset_index, time_index, transaction_index
from kreplica.storage.inspection.index_checks import Mismatch, OffsetIndexCheck, TimeIndexCheck, TransactionIndexCheck
from kreplica.storage.segments.batch_validation import read_marker
from kreplica.storage.segments.segment import (
    INDEX_SUFFIX,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
)
from kreplica.wire.batches import BatchHeader, verify_crc
from kreplica.wire.records import iter_records

PROBLEMS_MAX = 1000
"""Maximum number of problems reported for one segment."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Damage in a log file.

    :param position: position in bytes; None if the problem applies to the whole file.
    """

    path: str
    position: int | None
    text: str

    def __str__(self) -> str:
        location = self.path if self.position is None else f"{self.path}, position {self.position}"
        return f"{location}: {self.text}"


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Scope of a check.

    :param records: decompress batches and parse every record.
    :param gaps: report missing offsets; only for logs that were never compacted.
    """

    records: bool = False
    gaps: bool = False


@dataclass(slots=True)
class LogState:
    """State of a log before the next batch to check.

    :param next_offset: lower bound for the next batch; None if there is no earlier batch.
    :param epoch: the latest leader epoch.
    :param transactions: first offset of each open transaction, by producer ID.
    """

    next_offset: int | None = None
    epoch: int = NO_EPOCH
    transactions: dict[int, int] = field(default_factory=dict)

    def copy(self) -> LogState:
        return LogState(self.next_offset, self.epoch, dict(self.transactions))


class SegmentCheck:
    """Check of one segment.

    :param state: state before the segment; updated to its end.
    :param epochs: epochs in the log's checkpoint, oldest first.
    :param is_active: True for the last segment, whose indexes a broker writes later.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        state: LogState,
        epochs: Sequence[EpochEntry],
        *,
        is_active: bool,
        options: CheckOptions,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._epochs = epochs
        self._is_active = is_active
        self._options = options
        self.path = segment_path(directory, base_offset, ".log")
        self.state = state
        self.batches = 0
        self.size = 0

    def problems(self) -> Generator[Problem, None, None]:
        """Yield all problems of the segment.

        :raise FileNotFoundError: the segment was removed by retention.
        """
        # Read indexes first: a running broker never indexes batches that are not in the file yet.
        paths = [segment_path(self._directory, self._base_offset, suffix)
                 for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)]  # fmt: skip
        with (
            closing(offset_index(self._disk, paths[0])) as offsets,
            closing(time_index(self._disk, paths[1])) as times,
            closing(transaction_index(self._disk, paths[2])) as aborted,
            closing(self._disk.open(self.path)) as file,
        ):
            checks = (
                (offsets.path, OffsetIndexCheck(offsets, self._base_offset)),
                (times.path, TimeIndexCheck(times, self._base_offset)),
                (aborted.path, TransactionIndexCheck(aborted, self._base_offset)),
            )
            size, end = file.size(), 0
            for position, header, data in batches(file, size):
                for path, check in checks:
                    yield from _as_problems(path, check.check_batch(position, header))
                yield from _as_problems(self.path, self._batch(position, header, data, checks[2][1]))
                end = position + header.size
            if end < size:
                yield Problem(self.path, end, f"no complete batch starts here; {size - end} bytes remain")
            for path, check in checks:
                yield from _as_problems(path, check.check_end(end, self.state.next_offset or self._base_offset))
            if end and not self._is_active:
                yield from (
                    Problem(each.path, None, "is missing") for each in (offsets, times) if not each.exists
                )
            self.size = size

    def _batch(
        self, position: int, header: BatchHeader, data: memoryview, aborted: TransactionIndexCheck
    ) -> Iterator[Mismatch]:
        is_valid = verify_crc(data, header)
        if not is_valid:
            yield position, f"wrong CRC in the batch of offset {header.base_offset}"
        for text in (*self._offsets(header), *self._epoch(header)):
            yield position, text
        if is_valid:
            yield from ((position, text) for text in self._records(header, data, aborted))
        self.batches += 1
        # Ignore the fields of a damaged batch that would make later batches look wrong.
        next_offset = header.next_offset if is_valid else header.base_offset + 1
        self.state.next_offset = max(next_offset, self.state.next_offset or 0)
        if is_valid:
            self.state.epoch = max(header.partition_leader_epoch, self.state.epoch)

    def _offsets(self, header: BatchHeader) -> Iterator[str]:
        expected = self.state.next_offset
        if header.last_offset_delta < 0 or header.record_count > header.last_offset_delta + 1:
            yield f"{header.record_count} records in offsets {header.base_offset} to {header.last_offset}"
        if header.base_offset < self._base_offset or header.last_offset - self._base_offset > RELATIVE_OFFSET_MAX:
            yield f"offsets {header.base_offset} to {header.last_offset} in the segment of {self._base_offset}"
        elif expected is not None and header.base_offset < expected:
            yield f"offset {header.base_offset}, expected {expected} or higher"
        elif self._options.gaps:
            next_offset = self._base_offset if expected is None else expected
            if header.base_offset > next_offset:
                yield f"offset {header.base_offset}, expected {next_offset}: offsets are missing"

    def _epoch(self, header: BatchHeader) -> Iterator[str]:
        epoch = header.partition_leader_epoch
        if epoch == NO_EPOCH:
            return
        if epoch < self.state.epoch:
            yield f"leader epoch {epoch} after {self.state.epoch}"
            return
        index = bisect_right(self._epochs, header.base_offset, key=lambda entry: entry.start_offset)
        checkpoint_epoch = self._epochs[index - 1].epoch if index else NO_EPOCH
        # The checkpoint of a running or killed broker is older than its last batches.
        is_later = index == len(self._epochs) and epoch > checkpoint_epoch
        if checkpoint_epoch not in (NO_EPOCH, epoch) and not is_later:
            yield f"leader epoch {epoch}, but the checkpoint has {checkpoint_epoch} for this offset"

    def _records(self, header: BatchHeader, data: memoryview, aborted: TransactionIndexCheck) -> Iterator[str]:
        try:
            if self._options.records:
                for _ in iter_records(data):
                    pass
            if header.is_control:
                yield from self._marker(header, data, aborted)
            elif header.is_transactional:
                self.state.transactions.setdefault(header.producer_id, header.base_offset)
        except (ProtocolError, KafkaError) as error:
            yield f"the records of the batch of offset {header.base_offset}: {error}"

    def _marker(self, header: BatchHeader, data: memoryview, aborted: TransactionIndexCheck) -> Iterator[str]:
        marker = read_marker(data)
        first_offset = self.state.transactions.pop(header.producer_id, None) if marker is not None else None
        if marker is None or marker.committed or first_offset is None:
            return
        if aborted.last_confirmed != (header.producer_id, header.last_offset):
            yield (
                f"the transaction of producer {header.producer_id} from offset {first_offset} is aborted at "
                f"{header.last_offset}, but is not in the segment's index of aborted transactions"
            )


def _as_problems(path: str, mismatches: Iterator[Mismatch]) -> Iterator[Problem]:
    return (Problem(path, position, text) for position, text in mismatches)
