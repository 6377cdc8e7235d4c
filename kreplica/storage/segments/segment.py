"""One segment of a log: a file of record batches, its two indexes and its aborted transactions.

It knows positions and bytes; what offsets mean, and what may be appended, is the log's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twisted.logger import Logger

from kreplica.runtime.disk import Buffer, Disk, File
from kreplica.storage.formats.batch_scanning import header_at, scan_headers
from kreplica.storage.log_config import LogConfig
from kreplica.storage.producers.aborted_transactions import AbortedTransactions
from kreplica.storage.producers.snapshots import SNAPSHOT_SUFFIX
from kreplica.storage.segments.damage import Damage
from kreplica.storage.segments.indexes import NO_TIMESTAMP, OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, OffsetIndex, TimeIndex
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.wire.batches import HEADER_SIZE, BatchHeader

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
RELATIVE_OFFSET_MAX = 2**31 - 1
INDEX_INTERVAL_BYTES = 4096
"""Kafka's default, for an index that is made again where the topic's own setting is not known."""

_log = Logger()


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """The path of a segment's file: 20 digits and a suffix."""
    return f"{directory}/{base_offset:020d}{suffix}"


class Segment:
    """Owned by one log, or, with a ``name_end``, by the compaction that writes it.

    Its file is opened when it is first needed, and let go when others are needed more.
    """

    __slots__ = (
        "_bytes_since_index",
        "_directory",
        "_disk",
        "_file",
        "_first_timestamp_ms",
        "_largest",
        "_name_end",
        "_open_segments",
        "aborted",
        "base_offset",
        "created_ms",
        "entries_waiting",
        "offset_index",
        "size",
        "time_index",
    )

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
        self.entries_waiting = 0
        self._directory = directory
        self._name_end = name_end
        self._disk = disk
        self._open_segments = open_segments
        self._file: File | None = None
        self._bytes_since_index = 0
        self._first_timestamp_ms: int | None = None
        self._largest: tuple[int, int] | None = (NO_TIMESTAMP, base_offset) if new else None
        self.offset_index = OffsetIndex(self.path(INDEX_SUFFIX), base_offset, disk, new=new)
        self.time_index = TimeIndex(self.path(TIME_INDEX_SUFFIX), base_offset, disk, new=new)
        self.aborted = AbortedTransactions(self.path(TRANSACTION_INDEX_SUFFIX), disk)

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        """The path of one of its files."""
        return segment_path(self._directory, self.base_offset, suffix) + self._name_end

    @property
    def file(self) -> File:
        """The file of batches; that of an empty segment is made here where it is missing (a new log has none)."""
        file = self._file
        if file is None:
            file = self._file = self._open_segments.open(self._disk, self.path(), create=self.size == 0)
        self._open_segments.touch(self)
        return file

    def create(self) -> None:
        """Make its file, empty: the name alone says where the log ends."""
        self._file = self._open_segments.open(self._disk, self.path(), create=True)
        self._open_segments.touch(self)

    def renamed(self, disk: Disk, open_segments: OpenSegments) -> Segment:
        """Give its files their final names (the file of batches last), and open it under those."""
        final = Segment(self._directory, self.base_offset, disk, open_segments, size=self.size)
        final._largest = self._largest
        for suffix in reversed(SUFFIXES):
            try:
                disk.rename(self.path(suffix), final.path(suffix))
            except FileNotFoundError:
                continue
        return final

    def rename_end(self, disk: Disk, name_end: str) -> None:
        """Change what its files' names end with, the file of batches last."""
        before = [(self.path(suffix), suffix) for suffix in reversed(SUFFIXES)]
        self._name_end = name_end
        for path, suffix in before:
            try:
                disk.rename(path, self.path(suffix))
            except FileNotFoundError:
                continue

    def release(self) -> None:
        """Let go of the file and of index entries that the index files hold too."""
        self._file = None
        self.offset_index.release()
        self.time_index.release()

    def forget(self) -> None:
        """It is no part of a log any more."""
        self._file = None
        self._open_segments.forget(self)

    def share(self, open_segments: OpenSegments) -> None:
        """From now on be counted there."""
        self._open_segments.forget(self)
        self._open_segments = open_segments
        if self._file is not None:
            open_segments.touch(self)

    # --- writing ---

    def append(self, pieces: Sequence[Buffer], headers: Sequence[BatchHeader], index_interval_bytes: int) -> int:
        """Write batches at the end.

        :param pieces: the batches, one or several in each.
        :param headers: theirs, with the offsets they have now.
        :return: their position.
        :raise OSError: and then the segment is as it was, as far as it knows; the file may hold a part of the data.
        """
        position = at = self.size
        self.file.write_at(position, pieces)
        for header in headers:
            self.note(header, at, index_interval_bytes)
            at = self.size
        return position

    def note(self, header: BatchHeader, position: int, index_interval_bytes: int) -> None:
        """Take in a batch that is in the file at ``position``; ``size`` becomes its end.

        :raise OSError: an index that was let go cannot be read again; nothing has changed.
        """
        is_indexed = self._bytes_since_index > index_interval_bytes
        if is_indexed:
            self.offset_index.load()
            self.time_index.load()
        if position == 0:
            self._first_timestamp_ms = header.base_timestamp
        largest = self._largest or self.largest
        if header.max_timestamp > largest[0]:
            self._largest = largest = (header.max_timestamp, header.last_offset)
        if is_indexed:
            self.offset_index.append(header.last_offset, position)
            self.time_index.append(*largest)
            self.entries_waiting += 1
            self._bytes_since_index = 0
        size = header.size
        self._bytes_since_index += size
        self.size = position + size

    def reindex(self, index_interval_bytes: int = INDEX_INTERVAL_BYTES) -> None:
        """Make offset and time index again from the headers of all batches.

        :raise OSError: the segment cannot be read; the indexes have fewer entries.
        """
        size = self.size
        self.reset()
        try:
            for position, header in self.headers(0, size):
                self.note(header, position, index_interval_bytes)
            self.time_index.append(*self.largest)
        finally:
            self.size = size

    def adopt_indexes(self, made: Segment) -> None:
        """Take over the indexes that another thread has made from the batches, and write them; not synced.

        :raise OSError: the device fails, or is full; they are in use, and written later.
        """
        self.offset_index, self.time_index = made.offset_index, made.time_index
        self._largest = made.largest
        self.write_indexes()

    def reset(self) -> None:
        """Forget indexes and size, to have them made again by ``note``."""
        self.size = 0
        self._bytes_since_index = 0
        self._largest = (NO_TIMESTAMP, self.base_offset)
        self.offset_index.truncate_to(self.base_offset)
        self.time_index.truncate_to(self.base_offset)

    def resume(self, size: int, largest: tuple[int, int]) -> None:
        """Continue with indexes that hold all batches before a position, to have the others added by ``note``.

        :param largest: as ``largest`` is at that position.
        """
        self.size = size
        self._bytes_since_index = 0
        self._largest = largest

    def take_back(self, size: int) -> None:
        """Cut off what a write that failed may have left; where the file could not be opened, nothing was written."""
        self.size = size
        if self._file is not None:
            self.cut_back(size)

    def cut_back(self, size: int) -> None:
        """Cut the file (not the indexes) to a size."""
        self.file.truncate(size)
        self.size = size

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that holds ``offset`` and all that follow.

        :return: the new end offset: ``offset``, or the base offset of the batch that held it.
        """
        found = self.find(offset)
        if found is None:
            return offset
        position, header = found
        self.offset_index.truncate_to(header.base_offset)
        self.time_index.truncate_to(header.base_offset)
        self.aborted.truncate_to(header.base_offset)
        self.cut_back(position)
        self._bytes_since_index = 0
        self.find_largest()
        if position == 0:
            self._first_timestamp_ms = None
        return header.base_offset

    def seal(self) -> None:
        """Complete the indexes of the batches so far: a last time entry, and all files written."""
        self.time_index.append(*self.largest)
        self.write_indexes()

    def write_indexes(self) -> None:
        """Bring the index files up to date; not synced."""
        self.offset_index.write()
        self.time_index.write()
        self.aborted.write()
        self.entries_waiting = 0

    def is_full(self, size: int, last: BatchHeader, config: LogConfig, now_ms: int) -> bool:
        """Whether batches have to go to a new segment: by size, age, offsets or indexes.

        :param size: their bytes.
        :param last: the header of the last of them.
        """
        if self.size == 0:
            return False
        if self.size + size > config.segment_bytes:
            return True
        if last.last_offset - self.base_offset > RELATIVE_OFFSET_MAX or self.indexes_full(config):
            return True
        first_ms = self.first_timestamp_ms
        age_ms = last.max_timestamp - first_ms if first_ms >= 0 else now_ms - self.created_ms
        return age_ms > config.segment_ms - config.segment_jitter_ms

    def indexes_full(self, config: LogConfig) -> bool:
        """Whether the next entry (two of the time index, when it is sealed) might not fit."""
        size_max = config.segment_index_bytes
        if self.size < config.index_interval_bytes * (size_max // (2 * TIME_ENTRY_SIZE)):
            return False
        return (
            self.offset_index.size_bytes + OFFSET_ENTRY_SIZE > size_max
            or self.time_index.size_bytes + 2 * TIME_ENTRY_SIZE > size_max
        )

    # --- reading ---

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of the whole batches from a batch's position on."""
        return scan_headers(self.file, position, self.size if end is None else end)

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The position and header of the first batch that ends at or after ``offset``; None beyond the last.

        :raise Damage: something that is no batch lies on the way.
        """
        start = end = self.offset_index.lookup(offset)
        for position, header in self.headers(start):
            if header.last_offset >= offset:
                if position == start and start and header.base_offset > offset:
                    break  # the batch of an entry at or below the offset cannot begin beyond it
                return position, header
            end = position + header.size
        if end == start and start:
            return self._find_without_index(offset, start)
        if end < self.size:
            raise Damage(self.path(), self.base_offset, end, "no batch stands there")
        return None

    def _find_without_index(self, offset: int, position: int) -> tuple[int, BatchHeader] | None:
        """The same where the index is wrong, which it no longer is after this."""
        _log.warn(
            "{path}: the index leads to position {position}, where no batch of offset {offset} or before begins; it is "
            "made again",
            path=self.path(),
            position=position,
            offset=offset,
        )
        self.reindex()
        for at, header in self.headers(self.offset_index.lookup(offset)):
            if header.last_offset >= offset:
                return at, header
            position = at + header.size
        if position < self.size:
            raise Damage(self.path(), self.base_offset, position, "no batch stands there")
        return None

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch that begins there.

        :raise Damage: none does.
        """
        header = header_at(self.file.read_at(position, HEADER_SIZE), 0)
        if header is None:
            raise Damage(self.path(), self.base_offset, position, "no batch stands there")
        return header

    def last_end(self) -> int:
        """The offset after its last batch; its base offset when it is empty."""
        end = self.base_offset
        for _, header in self.headers(self.offset_index.last[1]):
            end = header.next_offset
        return end

    @property
    def largest(self) -> tuple[int, int]:
        """(largest timestamp, last offset of the batch that has it); (``NO_TIMESTAMP``, base offset) without any."""
        largest = self._largest
        if largest is None:
            self.find_largest()
            largest = self._largest
            assert largest is not None
        return largest

    def find_largest(self) -> None:
        """Make ``largest`` exact: the time index of an active segment lacks its last entry, a damaged one others."""
        timestamp_ms, offset = largest = self.time_index.last
        is_true = timestamp_ms == NO_TIMESTAMP
        for _, header in self.headers(self.offset_index.lookup(offset)):
            is_true = is_true or header.base_offset <= offset <= header.last_offset
            if header.base_offset <= offset <= header.last_offset and header.max_timestamp < timestamp_ms:
                is_true = False
                break
            if header.max_timestamp > largest[0]:
                largest = (header.max_timestamp, header.last_offset)
        if not is_true:
            self.reindex()
            largest = self.time_index.last
        self._largest = largest

    @property
    def first_timestamp_ms(self) -> int:
        """The first timestamp of its first batch, from which its age counts; ``NO_TIMESTAMP`` when it is empty."""
        first_ms = self._first_timestamp_ms
        if first_ms is not None:
            return first_ms
        for _, header in self.headers(0):
            self._first_timestamp_ms = header.base_timestamp
            return header.base_timestamp
        return NO_TIMESTAMP

    def age_timestamp_ms(self) -> int:
        """The timestamp retention goes by: the largest, or the file's own where no batch has one."""
        timestamp_ms = self.largest[0]
        return timestamp_ms if timestamp_ms >= 0 else self._disk.modified_ms(self.path())
