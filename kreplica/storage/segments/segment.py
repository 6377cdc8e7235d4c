"""One segment of a log: a file of record batches, two indexes and the index of aborted transactions.

A segment handles positions and bytes; the log decides which offsets are valid and which batches are appended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kreplica.runtime.disk import Buffer, Disk, File
from kreplica.storage.formats.batch_scanning import header_at, scan_headers
from kreplica.storage.producers.aborted_transactions import AbortedTransactions
from kreplica.storage.producers.snapshots import SNAPSHOT_SUFFIX
from kreplica.storage.segments.damage import Damage, damage_if_unreadable
from kreplica.storage.segments.indexes import NO_TIMESTAMP, OffsetIndex, TimeIndex
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.wire import kernels
from kreplica.wire.batches import HEADER_SIZE, BatchHeader

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
RELATIVE_OFFSET_MAX = 2**31 - 1
"""Maximum distance of an offset from the base offset: index entries have four bytes for it."""

INDEX_INTERVAL_BYTES = 4096
"""Kafka's default, used to rebuild an index if the topic's setting is unknown."""


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """Return the path of a segment's file: the base offset in 20 digits, and a suffix."""
    return f"{directory}/{base_offset:020d}{suffix}"


class Segment:
    """A segment, owned by a log or by the compaction that writes it.

    The file is opened on demand and closed when too many segments are open. The three indexes are created on first
    use, because a broker with many partitions has many segments that are never used.

    :param name_end: suffix of all file names while compaction writes the segment.
    """

    __slots__ = (
        "_bytes_since_index", "_directory", "_disk", "_file", "_first_timestamp_ms", "_has_indexes", "_is_new",
        "_largest", "_name_end", "_open_segments", "aborted", "base_offset", "created_ms", "offset_index", "size",
        "time_index", "unwritten_entries",
    )  # fmt: skip

    def __init__(
        self,
        directory: str,
        base_offset: int,
        disk: Disk,
        open_segments: OpenSegments,
        *,
        size: int,
        new: bool = False,
        name_end: str = "",
    ) -> None:
        self.base_offset = base_offset
        self.size = size
        self.created_ms = -1
        self.unwritten_entries = 0
        self._directory = directory
        self._name_end = name_end
        self._disk = disk
        self._open_segments = open_segments
        self._file: File | None = None
        self._bytes_since_index = 0
        self._first_timestamp_ms: int | None = None
        self._is_new = new
        self._has_indexes = False
        self._largest: tuple[int, int] | None = (NO_TIMESTAMP, base_offset) if new else None
        self.offset_index: OffsetIndex
        self.time_index: TimeIndex
        self.aborted: AbortedTransactions

    def __getattr__(self, name: str) -> Any:
        """Create an index on first use; later uses find the attribute."""
        if name == "offset_index":
            index: Any = OffsetIndex(self.path(INDEX_SUFFIX), self.base_offset, self._disk, new=self._is_new)
        elif name == "time_index":
            index = TimeIndex(self.path(TIME_INDEX_SUFFIX), self.base_offset, self._disk, new=self._is_new)
        elif name == "aborted":
            index = AbortedTransactions(self.path(TRANSACTION_INDEX_SUFFIX), self._disk, new=self._is_new)
        else:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        self._has_indexes = True
        setattr(self, name, index)
        return index

    def note_no_indexes(self) -> None:
        """Record that none of the three indexes has a file, so that they are created empty."""
        self._is_new = True

    @property
    def has_no_indexes(self) -> bool:
        """True if none of the three indexes has an entry or a file."""
        return self._is_new and not self._has_indexes

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        return segment_path(self._directory, self.base_offset, suffix) + self._name_end

    @property
    def file(self) -> File:
        """The file of batches; created on first use if the segment is empty."""
        file = self._file
        if file is None:
            file = self._file = self._open_segments.open(self._disk, self.path(), create=self.size == 0)
        self._open_segments.touch(self)
        return file

    def create(self) -> None:
        """Create the empty file, whose name marks the log end offset."""
        self._file = self._open_segments.open(self._disk, self.path(), create=True)
        self._open_segments.touch(self)

    def renamed(self, disk: Disk, open_segments: OpenSegments) -> Segment:
        """Rename the files to their final names, the file of batches last, and return the renamed segment."""
        final = Segment(self._directory, self.base_offset, disk, open_segments, size=self.size)
        final._largest = self._largest
        for suffix in reversed(SUFFIXES):
            try:
                disk.rename(self.path(suffix), final.path(suffix))
            except FileNotFoundError:
                continue
        return final

    def change_name_end(self, disk: Disk, name_end: str) -> None:
        """Change the suffix appended to the file names, the file of batches last."""
        old_paths = [(self.path(suffix), suffix) for suffix in reversed(SUFFIXES)]
        self._name_end = name_end
        for path, suffix in old_paths:
            try:
                disk.rename(path, self.path(suffix))
            except FileNotFoundError:
                continue

    def release(self) -> None:
        """Close the file and drop indexes whose files have all entries; later uses open and read them again."""
        self._file = None
        if not self._has_indexes:
            return
        indexes = (self.offset_index, self.time_index, self.aborted)
        is_empty = self._is_new and all(index.is_empty for index in indexes)
        if is_empty or all(index.is_written for index in indexes):
            self._is_new = is_empty
            self._has_indexes = False
            del self.offset_index, self.time_index, self.aborted

    def forget(self) -> None:
        """Close the file, and stop counting it as open."""
        self._file = None
        self._open_segments.forget(self)

    def count_in(self, open_segments: OpenSegments) -> None:
        """Count the open file in another ``OpenSegments``."""
        self._open_segments.forget(self)
        self._open_segments = open_segments
        if self._file is not None:
            open_segments.touch(self)

    # --- writing ---

    def append(self, pieces: Sequence[Buffer], headers: Sequence[BatchHeader], index_interval_bytes: int) -> int:
        """Write batches at the end.

        :param pieces: buffers with one or several batches each.
        :param headers: headers of all batches, with their final offsets.
        :return: position of the first batch.
        :raise OSError: the segment's state is unchanged, but the file may contain part of the data.
        """
        position = batch_position = self.size
        self.file.write_at(position, pieces)
        if kernels.index_batches is not None and self._add_batches(headers, position, index_interval_bytes):
            return position
        for header in headers:
            self.add_batch(header, batch_position, index_interval_bytes)
            batch_position = self.size
        return position

    def _add_batches(self, headers: Sequence[BatchHeader], position: int, index_interval_bytes: int) -> bool:
        """Like ``add_batch``, for consecutive batches; return False if nothing was done."""
        since, largest = self._bytes_since_index, self._largest or self.find_largest()
        found = kernels.index_batches(headers, position, since, index_interval_bytes, *largest)
        if found is None:
            return False
        size, since, largest, entries = found
        if entries:
            self.offset_index.load()
            self.time_index.load()
            for last_offset, at, timestamp_ms, offset in entries:
                self.offset_index.append(last_offset, at)
                self.time_index.append(timestamp_ms, offset)
            self.unwritten_entries += len(entries)
        if position == 0:
            self._first_timestamp_ms = headers[0].base_timestamp
        self.size, self._bytes_since_index, self._largest = size, since, largest
        return True

    def add_batch(self, header: BatchHeader, position: int, index_interval_bytes: int) -> None:
        """Update size and indexes for a batch in the file at ``position``.

        :raise OSError: a released index cannot be read; nothing has changed.
        """
        is_indexed = self._bytes_since_index > index_interval_bytes
        if is_indexed:
            self.offset_index.load()
            self.time_index.load()
        if position == 0:
            self._first_timestamp_ms = header.base_timestamp
        largest = self._largest or self.find_largest()
        if header.max_timestamp > largest[0]:
            self._largest = largest = (header.max_timestamp, header.last_offset)
        if is_indexed:
            self.offset_index.append(header.last_offset, position)
            self.time_index.append(*largest)
            self.unwritten_entries += 1
            self._bytes_since_index = 0
        size = header.size
        self._bytes_since_index += size
        self.size = position + size

    def reindex(self, index_interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        """Rebuild offset and time index from the headers of all batches.

        :raise OSError: the segment cannot be read; the indexes are incomplete.
        """
        size = self.size
        self.reset()
        try:
            for position, header in self.headers(0, size):
                self.add_batch(header, position, index_interval_bytes)
            self.time_index.append(*self.largest)
        finally:
            self.size = size

    def replace_indexes(self, rebuilt: Segment) -> None:
        """Replace the indexes with those built in another thread, and write them without a sync.

        :raise OSError: the write failed; the indexes are in use and written later.
        """
        self.offset_index, self.time_index = rebuilt.offset_index, rebuilt.time_index
        self._largest = rebuilt.largest
        self.write_indexes()

    def reset(self) -> None:
        """Clear indexes and size before they are rebuilt with ``add_batch``."""
        self.size = 0
        self._bytes_since_index = 0
        self._largest = (NO_TIMESTAMP, self.base_offset)
        if not self.has_no_indexes:
            self.offset_index.truncate_to(self.base_offset)
            self.time_index.truncate_to(self.base_offset)

    def resume(self, size: int, largest: tuple[int, int]) -> None:
        """Keep the indexes of the batches before a position; later batches are added with ``add_batch``.

        :param largest: value of ``largest`` at that position.
        """
        self.size = size
        self._bytes_since_index = 0
        self._largest = largest

    def undo_append(self, size: int) -> None:
        """Truncate the file after a failed write; if it is not open, nothing was written."""
        self.size = size
        if self._file is not None:
            self.truncate_file(size)

    def truncate_file(self, size: int) -> None:
        """Truncate the file, but not the indexes."""
        self.file.truncate(size)
        self.size = size

    def remove_from(self, position: int, base_offset: int) -> None:
        """Remove the batch at ``position``, whose base offset is given, and all later ones."""
        self.offset_index.truncate_to(base_offset)
        self.time_index.truncate_to(base_offset)
        self.aborted.truncate_to(base_offset)
        self.truncate_file(position)
        self._bytes_since_index = 0
        self.find_largest()
        if position == 0:
            self._first_timestamp_ms = None

    def seal(self) -> None:
        """Complete the indexes: add the last time entry and write all index files."""
        self.time_index.append(*(self._largest or self.find_largest()))
        self.write_indexes()

    def write_indexes(self) -> None:
        """Write new index entries without a sync."""
        self.offset_index.write()
        self.time_index.write()
        self.aborted.write()
        self.unwritten_entries = 0

    # --- reading ---

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of the whole batches, starting at the position of a batch."""
        return scan_headers(self.file, position, self.size if end is None else end)

    def header_at(self, position: int) -> BatchHeader:
        """Return the header of the batch at a position.

        :raise Damage: the position does not contain a valid batch.
        """
        header = header_at(self.file.read_at(position, HEADER_SIZE), 0)
        if header is None:
            raise Damage(self.path(), self.base_offset, position, "no valid batch at this position")
        return header

    def find_end_offset(self) -> int:
        """Return the offset after the last batch; the base offset if the segment is empty."""
        end = self.base_offset
        for _, header in self.headers(self.offset_index.last[1]):
            end = header.next_offset
        return end

    @property
    def largest(self) -> tuple[int, int]:
        """Largest timestamp, and last offset of the batch with it; (``NO_TIMESTAMP``, base offset) if there is none.

        :raise Damage: the segment cannot be read.
        """
        if self._largest is not None:
            return self._largest
        with damage_if_unreadable(self.path(), self.base_offset):
            return self.find_largest()

    @property
    def known_largest(self) -> tuple[int, int] | None:
        """``largest``, or None if it can be determined only by reading the segment."""
        return self._largest

    def find_largest(self) -> tuple[int, int]:
        """Compute ``largest`` from the batches after the last entry of the time index; rebuild a wrong index.

        The time index of an active segment lacks its last entry.

        :raise OSError: the segment cannot be read.
        """
        timestamp_ms, offset = largest = self.time_index.last
        is_exact = timestamp_ms == NO_TIMESTAMP
        for _, header in self.headers(self.offset_index.lookup(offset)):
            is_exact = is_exact or header.base_offset <= offset <= header.last_offset
            if header.base_offset <= offset <= header.last_offset and header.max_timestamp < timestamp_ms:
                is_exact = False
                break
            if header.max_timestamp > largest[0]:
                largest = (header.max_timestamp, header.last_offset)
        if not is_exact:
            self.reindex()
            largest = self.time_index.last
        self._largest = largest
        return largest

    @property
    def first_timestamp_ms(self) -> int:
        """First timestamp of the first batch, from which ``segment.ms`` counts; ``NO_TIMESTAMP`` if it is empty."""
        first_ms = self._first_timestamp_ms
        if first_ms is not None:
            return first_ms
        for _, header in self.headers(0):
            self._first_timestamp_ms = header.base_timestamp
            return header.base_timestamp
        return NO_TIMESTAMP

    def age_timestamp_ms(self) -> int:
        """Return the timestamp for retention: the largest of the records, or else the file's modification time.

        :raise Damage: the segment cannot be read.
        """
        timestamp_ms = self.largest[0]
        return timestamp_ms if timestamp_ms >= 0 else self._disk.status(self.path()).modified_ns // 1_000_000
