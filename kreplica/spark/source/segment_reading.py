"""Rows from a broker's own files, for ``kreplica.source=segments``; all options of a batch read apply."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from struct import Struct

import pyarrow as pa

from kreplica.client_core.fetched_batches import FetchedRecords, Isolation, visible_batches
from kreplica.client_core.offsets import EARLIEST, LATEST
from kreplica.model import TopicPartition
from kreplica.spark.source.decoding import Section, decode, open_section
from kreplica.spark.source.offset_lookup import find_missing
from kreplica.spark.source.options import HEADERS_COLUMN, Partitions, SourceOptions, TopicPattern
from kreplica.spark.source.positions import AtTime, CommonOffset, NoMatch, PartitionOffsets, Position
from kreplica.spark.source.range_reading import CHUNK_SIZE, report_loss
from kreplica.spark.source.ranges import OffsetRange
from kreplica.spark.source.rows import arrow_rows
from kreplica.spark.source.segment_files import ReplicaFiles, find_replicas
from kreplica.storage.formats.batch_scanning import header_at
from kreplica.wire.batches import HEADER_SIZE, LENGTH_END
from kreplica.wire.control_records import parse_end_marker
from kreplica.wire.records import iter_records

READ_SIZE = CHUNK_SIZE
_LENGTH = Struct(">i")
_LENGTH_OFFSET = LENGTH_END - _LENGTH.size


class SegmentLookup:
    """Looks up partitions and offsets in log directories."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._replicas = find_replicas(options.log_dirs)

    def partitions(self) -> list[TopicPartition]:
        """Return the selected partitions that exist, sorted."""
        selection = self._options.selection
        is_selected: Callable[[TopicPartition], object]
        if isinstance(selection, Partitions):
            is_selected = selection.partitions.__contains__
        elif isinstance(selection, TopicPattern):
            matches = re.compile(selection.pattern).fullmatch
            is_selected = lambda each: matches(each.topic) and not each.topic.startswith("__")  # noqa: E731
        else:
            names = selection.names
            is_selected = lambda each: each.topic in names  # noqa: E731
        return sorted(each for each in self._replicas if is_selected(each))

    def named_partitions(self) -> list[TopicPartition]:
        """Return the selected partitions; those named in the options must exist.

        :raise ValueError: a named topic or partition does not exist.
        """
        found = self.partitions()
        missing = find_missing(self._options.selection, found)
        if missing is not None:
            raise ValueError(f"{missing} is not in {', '.join(self._options.log_dirs)}")
        return found

    def offsets(self, position: Position, partitions: list[TopicPartition], option: str) -> dict[TopicPartition, int]:
        """Return the offset that a position denotes in each partition.

        :raise ValueError: the option names other partitions, or a timestamp after the last record.
        """
        if isinstance(position, CommonOffset):
            return {each: self._resolve(each, position.offset) for each in partitions}
        offsets_or_times = (
            position.offsets if isinstance(position, PartitionOffsets) else self._times(position, partitions)
        )
        _check_partitions(offsets_or_times, partitions, option)
        if isinstance(position, PartitionOffsets):
            return {each: self._resolve(each, offsets_or_times[each]) for each in partitions}
        return {each: self._at_time(each, offsets_or_times[each], position.no_match, option) for each in partitions}

    @staticmethod
    def _times(position: AtTime, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        if position.common_ms is None:
            return position.times_ms
        return dict.fromkeys(partitions, position.common_ms)

    def _resolve(self, partition: TopicPartition, offset: int) -> int:
        if offset not in (EARLIEST, LATEST):
            return offset
        replica = self._replicas[partition]
        if offset == EARLIEST:
            return replica.start
        end = replica.end()
        if self._options.settings.isolation is Isolation.READ_COMMITTED:
            return _last_stable_offset(replica, end)
        return max(end, replica.start)

    def _at_time(self, partition: TopicPartition, time_ms: int, no_match: NoMatch, option: str) -> int:
        replica, end = self._replicas[partition], self._resolve(partition, LATEST)
        for file, position, header in replica.headers(replica.start):
            if header.next_offset > end:
                break
            if header.max_timestamp >= time_ms and not header.is_control:
                for record in iter_records(file.read_at(position, header.size)):
                    if record.timestamp_ms >= time_ms and record.offset >= replica.start:
                        return record.offset
        if no_match is NoMatch.ERROR:
            raise ValueError(f"{option}: {partition} has no record at or after {time_ms} ms")
        return end


def read_segments(offset_range: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an offset range.

    :raise DataLoss: records are missing or damaged, and ``failOnDataLoss`` is true; otherwise they are skipped.
    """
    replica = find_replicas(options.log_dirs).get(offset_range.partition)
    if replica is None:
        report_loss(options, f"{offset_range.partition} is not in {', '.join(options.log_dirs)}")
        return
    if offset_range.start < replica.start:
        text = f"{offset_range.partition} starts at {replica.start}, after the requested offset {offset_range.start}"
        report_loss(options, text)
    start = max(offset_range.start, replica.start)
    is_committed = options.settings.isolation is Isolation.READ_COMMITTED
    aborted = replica.aborted_transactions(start) if is_committed else []
    sections: list[Section] = []
    size, next_offset = 0, start
    for data, position, chunk_end in _chunks(replica, start, offset_range.end):
        aborted_in_chunk = tuple(
            (each.producer_id, each.first_offset) for each in aborted if each.last_offset >= position
        )
        fetched = FetchedRecords(offset_range.partition, data, position, position, aborted_in_chunk)
        for header, batch in visible_batches(fetched):
            if header.base_offset >= offset_range.end:
                break
            sections.append(open_section(header, batch))
            size += len(sections[-1].records)
            if size >= CHUNK_SIZE:
                yield _rows(sections, start, offset_range, options)
                sections, size = [], 0
        next_offset = max(next_offset, chunk_end)
    if sections:
        yield _rows(sections, start, offset_range, options)
    if next_offset < offset_range.end:
        text = f"{offset_range.partition} ends at {next_offset}, before the requested end {offset_range.end}"
        report_loss(options, text)


def _rows(sections: list[Section], start: int, offset_range: OffsetRange, options: SourceOptions) -> pa.RecordBatch:
    records = decode(sections, with_headers=HEADERS_COLUMN in options.columns)
    return arrow_rows(offset_range.partition, records.between(start, offset_range.end), options.columns)


def _chunks(replica: ReplicaFiles, start: int, end: int) -> Iterator[tuple[memoryview, int, int]]:
    """Yield chunks of a log, starting with the batch that contains ``start``.

    :return: (bytes of complete batches, lower bound of their offsets, offset after them).
    """
    for base in replica.bases_from(start):
        if base >= end:
            return
        with closing(replica.open(base)) as file:
            position, file_end = replica.position(base, start), file.size()
            while position < file_end:
                data = memoryview(file.read_at(position, READ_SIZE))
                used, last = _complete_batches(data, start)
                if not used:
                    header = header_at(data, 0)
                    if header is None or position + header.size > file_end:
                        return  # an incomplete last batch, or damage that the caller reports
                    data = memoryview(file.read_at(position, header.size))
                    used, last = header.size, header.next_offset
                yield data[:used], max(start, base), last
                position += used
                if last >= end:
                    return
                start = max(start, last)


def _complete_batches(data: memoryview, start: int) -> tuple[int, int]:
    """Return the size of the complete batches, and the offset after them; parses only the last header."""
    used, end = 0, len(data) - HEADER_SIZE
    last = 0
    while used <= end:
        (length,) = _LENGTH.unpack_from(data, used + _LENGTH_OFFSET)
        next_offset = used + LENGTH_END + length
        if length <= 0 or next_offset > len(data):
            break
        last, used = used, next_offset
    header = header_at(data, last) if used else None
    return (0, start) if header is None else (used, header.next_offset)


def _last_stable_offset(replica: ReplicaFiles, end: int) -> int:
    """Return the first offset of the transactions that are open at ``end``; ``end`` if there are none."""
    open_transactions: dict[int, int] = {}
    for file, position, header in replica.headers(replica.start):
        if header.base_offset >= end:
            break
        if header.is_control:
            if any(parse_end_marker(record) for record in iter_records(file.read_at(position, header.size))):
                open_transactions.pop(header.producer_id, None)
        elif header.is_transactional:
            open_transactions.setdefault(header.producer_id, header.base_offset)
    return min([*open_transactions.values(), end])


def _check_partitions(
    offsets_or_times: Mapping[TopicPartition, int], partitions: list[TopicPartition], option: str
) -> None:
    for each in sorted(set(partitions) ^ offsets_or_times.keys()):
        problem = "is missing" if each in partitions else "is not read or does not exist"
        raise ValueError(f"{option}: {each} {problem}")
