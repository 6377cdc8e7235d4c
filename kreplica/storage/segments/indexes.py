"""The two sparse indexes of a segment, in Kafka's formats: offset to position, and timestamp to offset.

Missing entries at the end of an index only make a search slower. New entries are kept in memory until ``write``;
recovery rebuilds entries of the batches that it scans. Files are open only during reads and writes.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise

from kreplica.errors import StorageError
from kreplica.runtime.disk import Disk

OFFSET_ENTRY_SIZE = 8
TIME_ENTRY_SIZE = 12
NO_TIMESTAMP = -1

_TIME_ENTRY = struct.Struct(">qi")
_NATIVE_IS_LITTLE = sys.byteorder == "little"


class OffsetIndex:
    """Maps the last offset of a batch, relative to the base offset, to the position of the batch; both increase."""

    __slots__ = ("_base", "_disk", "_has_file", "_offsets", "_path", "_positions", "_written")

    def __init__(self, path: str, base_offset: int, disk: Disk, *, new: bool = False) -> None:
        self._path = path
        self._base = base_offset
        self._disk = disk
        self._offsets: array[int] | None = array("i") if new else None
        self._positions = array("i")
        self._written = 0
        self._has_file = not new

    def __len__(self) -> int:
        return len(self._load())

    @property
    def size_bytes(self) -> int:
        """Size of the file after all entries are written."""
        return len(self) * OFFSET_ENTRY_SIZE

    @property
    def last(self) -> tuple[int, int]:
        """Offset and position of the last entry; (base offset, 0) if there is none."""
        offsets = self._load()
        return (self._base + offsets[-1], self._positions[-1]) if offsets else (self._base, 0)

    def append(self, offset: int, position: int) -> None:
        """Add the batch that ends with ``offset`` and starts at ``position``."""
        offsets = self._load()
        offsets.append(offset - self._base)
        self._positions.append(position)

    def lookup(self, offset: int) -> int:
        """Return a position at or before the batch that contains ``offset``, at most one index interval away."""
        index = bisect_right(self._load(), offset - self._base)
        return self._positions[index - 1] if index else 0

    def offset_beyond(self, position: int) -> int | None:
        """Return the last offset of the first indexed batch at or after a position, or None."""
        offsets = self._load()
        index = bisect_left(self._positions, position)
        return self._base + offsets[index] if index < len(offsets) else None

    def truncate_to(self, offset: int) -> None:
        """Remove entries at or above ``offset``."""
        offsets = self._load()
        index = bisect_left(offsets, offset - self._base)
        if index < self._written:
            _truncate(self._disk, self._path, index * OFFSET_ENTRY_SIZE)
            self._written = index
        del offsets[index:], self._positions[index:]

    def write(self) -> None:
        """Write new entries without a sync; creates the file if it is missing."""
        if self._offsets is None:
            return
        new_entries = array("i", [0]) * (2 * (len(self._offsets) - self._written))
        new_entries[0::2] = self._offsets[self._written :]
        new_entries[1::2] = self._positions[self._written :]
        if _NATIVE_IS_LITTLE:
            new_entries.byteswap()
        _append(self._disk, self._path, self._written * OFFSET_ENTRY_SIZE, new_entries.tobytes())
        self._written, self._has_file = len(self._offsets), True

    @property
    def is_written(self) -> bool:
        """True if the file exists and has all entries."""
        return self._offsets is None or (self._has_file and self._written == len(self._offsets))

    @property
    def is_empty(self) -> bool:
        """True if there are certainly no entries."""
        return self._offsets is not None and not self._offsets

    def check(self, size_bytes: int) -> None:
        """Read the file and check that it is plausible for a segment of this size.

        :raise StorageError: the file is missing or damaged and must be rebuilt.
        """
        if not self._disk.exists(self._path):
            raise StorageError(f"{self._path} is missing")
        offsets = self._load()
        if not (_grows(offsets) and _grows(self._positions)) or (
            offsets and (offsets[0] < 0 or self._positions[-1] >= size_bytes)
        ):
            raise StorageError(f"{self._path} is damaged")

    def load(self) -> None:
        """Read released entries from the file."""
        self._load()

    def _load(self) -> array[int]:
        if self._offsets is None:
            self._has_file, data = _read(self._disk, self._path, OFFSET_ENTRY_SIZE)
            numbers = array("i", data)
            if _NATIVE_IS_LITTLE:
                numbers.byteswap()
            self._offsets, self._positions = numbers[0::2], numbers[1::2]
            self._written = len(self._offsets)
        return self._offsets


class TimeIndex:
    """Maps the largest timestamp so far to the relative last offset of its batch; timestamps increase."""

    __slots__ = ("_base", "_disk", "_entries", "_has_file", "_path", "_written")

    def __init__(self, path: str, base_offset: int, disk: Disk, *, new: bool = False) -> None:
        self._path = path
        self._base = base_offset
        self._disk = disk
        self._entries: bytearray | None = bytearray() if new else None
        self._written = 0
        self._has_file = not new

    def __len__(self) -> int:
        return len(self._load()) // TIME_ENTRY_SIZE

    @property
    def size_bytes(self) -> int:
        """Size of the file after all entries are written."""
        return len(self._load())

    @property
    def last(self) -> tuple[int, int]:
        """Timestamp and offset of the last entry; (``NO_TIMESTAMP``, base offset) if there is none."""
        entries = self._load()
        return self._entry(entries, -1 + len(entries) // TIME_ENTRY_SIZE) if entries else (NO_TIMESTAMP, self._base)

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add the largest timestamp of the records up to ``offset``; ignored unless it is larger than the last one."""
        entries = self._load()
        if timestamp_ms > self.last[0]:
            entries += _TIME_ENTRY.pack(timestamp_ms, offset - self._base)

    def lookup(self, timestamp_ms: int) -> int:
        """Return an offset up to which all records are earlier than ``timestamp_ms``; at worst the base offset."""
        entries = self._load()
        count = len(entries) // TIME_ENTRY_SIZE
        index = bisect_left(range(count), timestamp_ms, key=lambda index: self._entry(entries, index)[0])
        return self._entry(entries, index - 1)[1] if index else self._base

    def truncate_to(self, offset: int) -> None:
        """Remove entries at or above ``offset``."""
        entries = self._load()
        count = len(entries) // TIME_ENTRY_SIZE
        index = bisect_left(range(count), offset, key=lambda index: self._entry(entries, index)[1])
        if index < self._written:
            _truncate(self._disk, self._path, index * TIME_ENTRY_SIZE)
            self._written = index
        del entries[index * TIME_ENTRY_SIZE :]

    def write(self) -> None:
        """Write new entries without a sync; creates the file if it is missing."""
        if self._entries is None:
            return
        position = self._written * TIME_ENTRY_SIZE
        _append(self._disk, self._path, position, bytes(self._entries[position:]))
        self._written, self._has_file = len(self._entries) // TIME_ENTRY_SIZE, True

    @property
    def is_written(self) -> bool:
        """True if the file exists and has all entries."""
        return self._entries is None or (
            self._has_file and self._written * TIME_ENTRY_SIZE == len(self._entries)
        )

    @property
    def is_empty(self) -> bool:
        """True if there are certainly no entries."""
        return self._entries is not None and not self._entries

    def check(self, next_offset: int) -> None:
        """Read the file and check that it is plausible for a segment that ends before ``next_offset``.

        :raise StorageError: the file is missing or damaged and must be rebuilt.
        """
        if not self._disk.exists(self._path):
            raise StorageError(f"{self._path} is missing")
        rows = list(_TIME_ENTRY.iter_unpack(self._load()))
        grows = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(rows))
        if not grows or (rows and (rows[0][1] < 0 or self._base + rows[-1][1] >= next_offset)):
            raise StorageError(f"{self._path} is damaged")

    def _entry(self, entries: bytearray, index: int) -> tuple[int, int]:
        timestamp_ms, relative = _TIME_ENTRY.unpack_from(entries, index * TIME_ENTRY_SIZE)
        return timestamp_ms, self._base + relative

    def load(self) -> None:
        """Read released entries from the file."""
        self._load()

    def _load(self) -> bytearray:
        if self._entries is None:
            self._has_file, data = _read(self._disk, self._path, TIME_ENTRY_SIZE)
            self._entries = bytearray(data)
            self._written = len(self._entries) // TIME_ENTRY_SIZE
        return self._entries


def _grows(values: array[int]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _read(disk: Disk, path: str, entry_size: int) -> tuple[bool, bytes]:
    """Return whether an index file exists, and its entries.

    Kafka preallocates the index of an active segment with zeros, which remain if the broker is killed.
    """
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return False, b""
    used = len(data.rstrip(b"\0"))
    if len(data) > entry_size:  # a single zero entry is valid: offset 0 at time 0
        data = data[: -(-used // entry_size) * entry_size]
    return True, data[: len(data) // entry_size * entry_size]


def _append(disk: Disk, path: str, position: int, data: bytes) -> None:
    file = disk.open(path, create=True)
    try:
        if file.size() > position:
            file.truncate(position)
        if data:
            file.write_at(position, [data])
    finally:
        file.close()


def _truncate(disk: Disk, path: str, size: int) -> None:
    file = disk.open(path, create=True)
    try:
        file.truncate(size)
    finally:
        file.close()
