"""Files of a broker's log directories, read without the broker, for the offline source and the audit."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from struct import Struct
from typing import NamedTuple

from kreplica.errors import StorageError
from kreplica.model import TopicPartition
from kreplica.runtime.disk import File
from kreplica.runtime.os_disk import ReadOnlyDisk
from kreplica.storage.formats.batch_scanning import scan_headers
from kreplica.storage.formats.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, read_offsets
from kreplica.storage.formats.names import parse_directory_name
from kreplica.storage.inspection.files import (
    aborted_entries,
    offset_index,
    segment_bases,
    transaction_index,
)
from kreplica.storage.producers.aborted_transactions import AbortedTransaction
from kreplica.storage.segments.indexes import OFFSET_ENTRY_SIZE
from kreplica.wire.batches import BatchHeader

NAME_DIGITS = 20

unpack_entry = Struct(">ii").unpack_from
"""Unpacks an index entry: offset relative to the segment's base offset, and file position."""


class ReplicaFiles(NamedTuple):
    """Files of one partition in a log directory.

    :param start: log start offset.
    :param high_watermark: from the broker's last checkpoint; None if there is none.
    """

    partition: TopicPartition
    path: str
    start: int
    high_watermark: int | None

    def bases(self) -> list[int]:
        """Return the base offsets of the segments, ascending."""
        return segment_bases(ReadOnlyDisk().list_directory(self.path))

    def end(self) -> int:
        """Return the high watermark; the log end offset if no checkpoint contains one."""
        return self.log_end() if self.high_watermark is None else self.high_watermark

    def log_end(self) -> int:
        """Return the offset after the last complete batch."""
        bases = self.bases()
        end = bases[-1] if bases else self.start
        for _, _, header in self.headers(end):
            end = header.next_offset
        return end

    def headers(self, offset: int) -> Iterator[tuple[File, int, BatchHeader]]:
        """Yield (file, position, header) of all batches, starting with the one that contains an offset."""
        for base in self.bases_from(offset):
            with closing(self.open(base)) as file:
                for position, header in scan_headers(file, self.position(base, offset), file.size()):
                    if header.last_offset >= offset:
                        yield file, position, header

    def bases_from(self, offset: int) -> list[int]:
        """Return the base offsets of the segment that may contain an offset, and of all later segments."""
        bases = self.bases()
        return bases[max(0, bisect_right(bases, offset) - 1) :]

    def open(self, base: int) -> File:
        """Open the file of a segment."""
        return ReadOnlyDisk().open(f"{self.path}/{base:0{NAME_DIGITS}}.log")

    def position(self, base: int, offset: int) -> int:
        """Return the file position from which to search for an offset, from the index; 0 if there is no entry."""
        disk, path = ReadOnlyDisk(), f"{self.path}/{base:0{NAME_DIGITS}}.index"
        with closing(offset_index(disk, path)) as index:
            count = index.size // OFFSET_ENTRY_SIZE
        if not count:
            return 0
        data = disk.read_file(path)
        following = bisect_right(
            range(count), offset - base, key=lambda index: unpack_entry(data, index * OFFSET_ENTRY_SIZE)[0]
        )
        position: int = unpack_entry(data, (following - 1) * OFFSET_ENTRY_SIZE)[1] if following else 0
        return position

    def aborted_transactions(self, offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that end at or after an offset, ordered by their first offset."""
        found = []
        for base in self.bases_from(offset):
            with closing(transaction_index(ReadOnlyDisk(), f"{self.path}/{base:0{NAME_DIGITS}}.txnindex")) as index:
                found += [entry.aborted for entry in aborted_entries(index) if entry.aborted.last_offset >= offset]
        return sorted(found, key=lambda aborted: aborted.first_offset)


def find_replicas(log_dirs: Sequence[str]) -> dict[TopicPartition, ReplicaFiles]:
    """Return all partitions in the log directories of one broker.

    :raise StorageError: a directory does not exist, or a checkpoint is damaged.
    """
    found: dict[TopicPartition, ReplicaFiles] = {}
    disk = ReadOnlyDisk()
    for log_dir in log_dirs:
        try:
            names = disk.list_directory(log_dir)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StorageError(f"{log_dir} is not a log directory: {error}") from error
        high_watermarks = read_offsets(disk, f"{log_dir}/{HIGH_WATERMARKS}")
        starts = read_offsets(disk, f"{log_dir}/{LOG_START_OFFSETS}")
        for name in sorted(names):
            partition = parse_directory_name(name)
            path = f"{log_dir}/{name}"
            if partition is None or not disk.is_directory(path):
                continue
            bases = segment_bases(disk.list_directory(path))
            if bases:
                start = max(starts.get(partition, 0), bases[0])
                found[partition] = ReplicaFiles(partition, path, start, high_watermarks.get(partition))
    return found
