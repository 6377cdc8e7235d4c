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
from kreplica.spark.source.offset_lookup import missing_name
from kreplica.spark.source.options import HEADERS_COLUMN, Partitions, SourceOptions, TopicPattern
from kreplica.spark.source.positions import AtTime, Everywhere, InEach, NoMatch, Position
from kreplica.spark.source.range_reading import CHUNK_SIZE, lost
from kreplica.spark.source.ranges import OffsetRange
from kreplica.spark.source.rows import arrow_rows
from kreplica.spark.source.segment_files import ReplicaFiles, replicas
from kreplica.storage.formats.batch_scanning import header_at
from kreplica.wire.batches import HEADER_SIZE, LENGTH_END
from kreplica.wire.control_records import parse_end_marker
from kreplica.wire.records import iter_records

READ_SIZE = CHUNK_SIZE
_LENGTH = Struct(">i")
_LENGTH_AT = LENGTH_END - _LENGTH.size


class SegmentLookup:
    """Looks up partitions and offsets in log directories."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._replicas = replicas(options.log_dirs)

    def partitions(self) -> list[TopicPartition]:
        """Return the selected partitions that exist, sorted."""
        selection = self._options.selection
        wanted: Callable[[TopicPartition], object]
        if isinstance(selection, Partitions):
            wanted = selection.partitions.__contains__
        elif isinstance(selection, TopicPattern):
            matches = re.compile(selection.pattern).fullmatch
            wanted = lambda each: matches(each.topic) and not each.topic.startswith("__")  # noqa: E731
        else:
            names = selection.names
            wanted = lambda each: each.topic in names  # noqa: E731
        return sorted(each for each in self._replicas if wanted(each))

    def named_partitions(self) -> list[TopicPartition]:
        """Return the selected partitions; those named by options must exist.

        :raise ValueError: a named topic or partition does not exist.
        """
        found = self.partitions()
        missing = missing_name(self._options.selection, found)
        if missing is not None:
            raise ValueError(f"{missing} is not in {', '.join(self._options.log_dirs)}")
        return found

    def offsets(self, position: Position, partitions: list[TopicPartition], option: str) -> dict[TopicPartition, int]:
        """Return the offset that a position denotes in each partition.

        :raise ValueError: the option names other partitions, or a timestamp after the last record.
        """
        if isinstance(position, Everywhere):
            return {each: self._marked(each, position.offset) for each in partitions}
        given = position.offsets if isinstance(position, InEach) else self._times(position, partitions)
        _check_same(given, partitions, option)
        if isinstance(position, InEach):
            return {each: self._marked(each, given[each]) for each in partitions}
        return {each: self._at_time(each, given[each], position.no_match, option) for each in partitions}

    @staticmethod
    def _times(position: AtTime, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        if position.everywhere_ms is None:
            return position.times_ms
        return dict.fromkeys(partitions, position.everywhere_ms)

    def _marked(self, partition: TopicPartition, offset: int) -> int:
        if offset not in (EARLIEST, LATEST):
            return offset
        replica = self._replicas[partition]
        if offset == EARLIEST:
            return replica.start
        end = replica.end()
        if self._options.settings.isolation is Isolation.READ_COMMITTED:
            return _first_open(replica, end)
        return max(end, replica.start)

    def _at_time(self, partition: TopicPartition, time_ms: int, no_match: NoMatch, option: str) -> int:
        replica, end = self._replicas[partition], self._marked(partition, LATEST)
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


def read_segments(wanted: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an offset range.

    :raise DataLoss: records are missing or damaged, and ``failOnDataLoss`` is true; otherwise they are skipped.
    """
    replica = replicas(options.log_dirs).get(wanted.partition)
    if replica is None:
        lost(options, f"{wanted.partition} is not in {', '.join(options.log_dirs)}")
        return
    if wanted.start < replica.start:
        lost(options, f"{wanted.partition} starts at {replica.start}, after the requested offset {wanted.start}")
    start = max(wanted.start, replica.start)
    is_committed = options.settings.isolation is Isolation.READ_COMMITTED
    aborted = replica.aborted(start) if is_committed else []
    gathered: list[Section] = []
    size, behind = 0, start
    for data, position, following in _chunks(replica, start, wanted.end):
        lists = tuple((each.producer_id, each.first_offset) for each in aborted if each.last_offset >= position)
        fetched = FetchedRecords(wanted.partition, data, position, position, lists)
        for header, batch in visible_batches(fetched):
            if header.base_offset >= wanted.end:
                break
            gathered.append(open_section(header, batch))
            size += len(gathered[-1].records)
            if size >= CHUNK_SIZE:
                yield _rows(gathered, start, wanted, options)
                gathered, size = [], 0
        behind = max(behind, following)
    if gathered:
        yield _rows(gathered, start, wanted, options)
    if behind < wanted.end:
        lost(options, f"{wanted.partition} ends at {behind}, before the requested end {wanted.end}")


def _rows(sections: list[Section], start: int, wanted: OffsetRange, options: SourceOptions) -> pa.RecordBatch:
    records = decode(sections, with_headers=HEADERS_COLUMN in options.columns)
    return arrow_rows(wanted.partition, records.between(start, wanted.end), options.columns)


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
                used, last = _whole(data, start)
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


def _whole(data: memoryview, start: int) -> tuple[int, int]:
    """Return the bytes that complete batches occupy, and the offset after them; reads only the headers of most."""
    used, end = 0, len(data) - HEADER_SIZE
    last = 0
    while used <= end:
        (length,) = _LENGTH.unpack_from(data, used + _LENGTH_AT)
        behind = used + LENGTH_END + length
        if length <= 0 or behind > len(data):
            break
        last, used = used, behind
    header = header_at(data, last) if used else None
    return (0, start) if header is None else (used, header.next_offset)


def _first_open(replica: ReplicaFiles, end: int) -> int:
    """Return the start of the first transaction that is still open at an offset; that offset if there is none."""
    begun: dict[int, int] = {}
    for file, position, header in replica.headers(replica.start):
        if header.base_offset >= end:
            break
        if header.is_control:
            if any(parse_end_marker(record) for record in iter_records(file.read_at(position, header.size))):
                begun.pop(header.producer_id, None)
        elif header.is_transactional:
            begun.setdefault(header.producer_id, header.base_offset)
    return min([*begun.values(), end])


def _check_same(given: Mapping[TopicPartition, int], wanted: list[TopicPartition], option: str) -> None:
    for each in sorted(set(wanted) ^ given.keys()):
        what = "is missing" if each in wanted else "is not read or does not exist"
        raise ValueError(f"{option}: {each} {what}")
