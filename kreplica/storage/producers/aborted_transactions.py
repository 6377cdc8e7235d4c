"""Kafka's ``.txnindex`` file: transactions aborted by a marker in a segment (KIP-98)."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import crc32c

from kreplica.runtime.disk import Disk

_ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """Records of ``producer_id`` from ``first_offset`` to the marker at ``last_offset`` were aborted.

    :param last_stable_offset: the last stable offset once the marker is committed.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactions:
    """Aborted transactions of one segment; the file is missing if there are none."""

    __slots__ = ("_disk", "_is_absent", "_path", "_unwritten")

    def __init__(self, path: str, disk: Disk, *, new: bool = False) -> None:
        self._path = path
        self._disk = disk
        self._unwritten: tuple[AbortedTransaction, ...] = ()
        """Entries that are not in the file yet."""
        self._is_absent = new
        """True if the file is known to be missing, as for most segments."""

    @property
    def is_written(self) -> bool:
        """True if the file has all entries."""
        return not self._unwritten

    @property
    def is_empty(self) -> bool:
        """True if there are certainly no entries."""
        return self._is_absent and not self._unwritten

    def append(self, aborted: AbortedTransaction) -> None:
        """Append an entry to the file without a sync.

        :raise OSError: the write failed; ``write`` retries it.
        """
        self._unwritten += (aborted,)
        self.write()

    def write(self) -> None:
        """Write new entries without a sync.

        :raise OSError: see ``append``.
        """
        if not self._unwritten:
            return
        self._is_absent = False
        file = self._disk.open(self._path, create=True)
        try:
            data = b"".join(_ENTRY.pack(0, *aborted) for aborted in self._unwritten)
            file.write_at(file.size() // _ENTRY.size * _ENTRY.size, [data])
        finally:
            file.close()
        self._unwritten = ()

    def replace(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Rewrite the file without a sync.

        :raise OSError: the write failed, and the file is unchanged.
        """
        self._unwritten = ()
        self._is_absent = False
        self._disk.write_file(self._path, b"".join(_ENTRY.pack(0, *each) for each in aborted), sync=False)

    def digest(self) -> tuple[int, int]:
        """Return the number of entries in the file and its checksum."""
        data = self._read()
        return len(data) // _ENTRY.size, crc32c.crc32c(data) if data else 0

    def is_plausible(self, base_offset: int, end_offset: int) -> bool:
        """True if the file has whole entries of version 0 whose markers are in order and within the segment."""
        data = self._read()
        if len(data) % _ENTRY.size:
            return False
        last = base_offset - 1
        for version, producer_id, first_offset, last_offset, stable_offset in _ENTRY.iter_unpack(data):
            in_order = last < last_offset < end_offset and 0 <= first_offset <= last_offset
            if not 0 <= stable_offset <= last_offset + 1 or version or producer_id < 0 or not in_order:
                return False
            last = last_offset
        return True

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return self.ended_from(0)

    def ended_from(self, offset: int) -> Iterator[AbortedTransaction]:
        """Yield entries whose marker is at or above ``offset``, ordered by marker."""
        data = self._read()
        count = len(data) // _ENTRY.size
        first = bisect_left(range(count), offset, key=lambda index: _unpack(data, index).last_offset)
        for index in range(first, count):
            yield _unpack(data, index)
        for aborted in self._unwritten:
            if aborted.last_offset >= offset:
                yield aborted

    def _read(self) -> bytes:
        if self._is_absent:
            return b""
        try:
            return self._disk.read_file(self._path)
        except FileNotFoundError:
            self._is_absent = True
            return b""

    def truncate_to(self, offset: int) -> None:
        """Remove entries whose marker is at or above ``offset``."""
        self._unwritten = tuple(aborted for aborted in self._unwritten if aborted.last_offset < offset)
        if self._is_absent:
            return
        remaining_count = sum(1 for aborted in self if aborted.last_offset < offset) - len(self._unwritten)
        if self._disk.exists(self._path):
            file = self._disk.open(self._path)
            try:
                file.truncate(remaining_count * _ENTRY.size)
            finally:
                file.close()


def _unpack(data: bytes, index: int) -> AbortedTransaction:
    return AbortedTransaction(*_ENTRY.unpack_from(data, index * _ENTRY.size)[1:])
