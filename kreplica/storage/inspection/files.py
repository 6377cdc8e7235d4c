"""Readers for the files of a partition's directory; each yields one entry at a time and reads a bounded size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from kreplica.runtime.disk import Disk, File
from kreplica.storage.formats.batch_scanning import scan_batches
from kreplica.storage.producers.aborted_transactions import AbortedTransaction
from kreplica.storage.segments.indexes import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from kreplica.storage.segments.segment import LOG_SUFFIX
from kreplica.wire.batches import BatchHeader

BATCH_SIZE_MAX = 128 * 1024 * 1024
"""Maximum size of a batch; a larger length means damage and is not read into memory."""

ABORTED_ENTRY_SIZE = 34

_ENTRIES_PER_READ = 4096
_SEGMENT_FILE = re.compile(r"(\d{20})(\.[a-z]+)")
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_ABORTED_ENTRY = Struct(">hqqqq")


class OffsetEntry(NamedTuple):
    """Index entry: the batch at ``position`` is the first that may contain records from ``offset`` on.

    :param start: position of the entry in the index file.
    """

    start: int
    offset: int
    position: int


class TimeEntry(NamedTuple):
    """Index entry: no record before ``offset`` is later than ``timestamp_ms``."""

    start: int
    timestamp_ms: int
    offset: int


class AbortedEntry(NamedTuple):
    """Entry of an index of aborted transactions.

    :param version: always 0.
    """

    start: int
    version: int
    aborted: AbortedTransaction


def segment_bases(names: list[str]) -> list[int]:
    """Return the base offsets of the segments among these file names, in increasing order."""
    found = (_SEGMENT_FILE.fullmatch(name) for name in names)
    return sorted(int(match[1]) for match in found if match is not None and match[2] == LOG_SUFFIX)


def base_offset_of(name: str) -> int:
    """Return the base offset in a file name, or 0."""
    digits = name.split(".", 1)[0]
    return int(digits) if digits.isascii() and digits.isdigit() else 0


def batches(file: File, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield position, header and bytes of the whole batches before ``end``; stops at the first invalid one."""
    return scan_batches(file, 0, end, batch_size_max=BATCH_SIZE_MAX)


class EntryFile:
    """An open file with entries of fixed size; its size is read once.

    Kafka preallocates the index of the active segment with zeros, which remain if the broker is killed; zeros are not
    entries.

    :ivar exists: False if the file is missing; it then has no entries.
    :ivar size: size in bytes without these zeros.
    """

    def __init__(self, disk: Disk, path: str, entry_size: int, *, ignore_trailing_zeros: bool) -> None:
        self.path = path
        self.entry_size = entry_size
        try:
            self._file: File | None = disk.open(path)
        except FileNotFoundError:
            self._file = None
        self.exists = self._file is not None
        self.size = 0 if self._file is None else self._file.size()
        if ignore_trailing_zeros and self.size > entry_size:
            self.size = self._without_zeros(self.size)

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._file is not None:
            self._file.close()

    def entries(self) -> Iterator[tuple[int, bytes]]:
        """Yield position and bytes of each whole entry."""
        size, step = self.entry_size, _ENTRIES_PER_READ * self.entry_size
        end = self.size // size * size
        for start in range(0, end, step):
            assert self._file is not None
            data = self._file.read_at(start, min(step, end - start))
            for entry_position in range(0, len(data) // size * size, size):
                yield start + entry_position, data[entry_position : entry_position + size]

    def _without_zeros(self, size: int) -> int:
        assert self._file is not None
        step = _ENTRIES_PER_READ * self.entry_size
        while size:
            start = max(0, size - step)
            used = len(self._file.read_at(start, size - start).rstrip(b"\0"))
            if used:
                whole = -(-(start + used) // self.entry_size) * self.entry_size
                return min(whole, size)
            size = start
        return 0


def offset_index(disk: Disk, path: str) -> EntryFile:
    """Open an ``.index`` file for ``offset_entries``."""
    return EntryFile(disk, path, OFFSET_ENTRY_SIZE, ignore_trailing_zeros=True)


def offset_entries(file: EntryFile, base_offset: int) -> Iterator[OffsetEntry]:
    """Yield the entries of an ``.index`` file."""
    for entry_position, data in file.entries():
        relative, position = _OFFSET_ENTRY.unpack(data)
        yield OffsetEntry(entry_position, base_offset + relative, position)


def time_index(disk: Disk, path: str) -> EntryFile:
    """Open a ``.timeindex`` file for ``time_entries``."""
    return EntryFile(disk, path, TIME_ENTRY_SIZE, ignore_trailing_zeros=True)


def time_entries(file: EntryFile, base_offset: int) -> Iterator[TimeEntry]:
    """Yield the entries of a ``.timeindex`` file."""
    for entry_position, data in file.entries():
        timestamp_ms, relative = _TIME_ENTRY.unpack(data)
        yield TimeEntry(entry_position, timestamp_ms, base_offset + relative)


def transaction_index(disk: Disk, path: str) -> EntryFile:
    """Open a ``.txnindex`` file for ``aborted_entries``."""
    return EntryFile(disk, path, ABORTED_ENTRY_SIZE, ignore_trailing_zeros=False)


def aborted_entries(file: EntryFile) -> Iterator[AbortedEntry]:
    """Yield the entries of a ``.txnindex`` file."""
    for entry_position, data in file.entries():
        version, *numbers = _ABORTED_ENTRY.unpack(data)
        yield AbortedEntry(entry_position, version, AbortedTransaction(*numbers))
