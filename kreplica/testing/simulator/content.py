"""Bytes of a file in memory, and their state after a power loss.

An undo list of unsynced changes restores the durable bytes, so neither appends nor syncs copy a file.  Names, open
files and faults are in ``kreplica.testing.simulator.disk``.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from kreplica.runtime.disk import Buffer

SECTOR_BYTES = 512
PAGE_BYTES = 4096
# One rate is drawn per file: with one rate for all files, a long unsynced tail would almost never survive whole.
LOSS_RATES = (0.0, 0.02, 0.2, 0.5, 1.0)


class Change(NamedTuple):
    """Undo record of one unsynced change of a file.

    :param old: previous bytes at ``position``: those overwritten, or the tail that a truncation removed.
    :param length: number of new bytes at ``position``; 0 if only the file's length changed.
    """

    position: int
    old: bytes
    length: int
    size_before: int
    size_after: int


class Content:
    """Bytes of one file as programs see them, and the changes that are not yet durable."""

    __slots__ = (
        "_failed_sync_end",
        "_flipped",
        "_synced_after_failure",
        "_unsynced",
        "cold",
        "data",
        "linked",
        "modified_ms",
        "open_count",
        "reserved",
    )

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.modified_ms = modified_ms
        self.reserved = 0
        self.open_count = 0
        self.linked = True
        self.cold = False
        self._flipped: dict[int, int] = {}
        self._unsynced: list[Change] = []
        # An fsync failed for the changes before ``_failed_sync_end``: Linux marks such pages clean, so no later fsync
        # covers them.  The changes from there to ``_synced_after_failure`` are durable, and stay in the list only
        # because they may overlap earlier changes that are not durable.
        self._failed_sync_end = 0
        self._synced_after_failure = 0

    def footprint(self) -> int:
        """Return the number of bytes that the file occupies on the device."""
        return max(len(self.data), self.reserved)

    def flip(self, position: int, bit: int) -> None:
        """Invert one bit of a byte.

        :raise IndexError: the position is beyond the end of the file.
        """
        self.data[position] ^= 1 << bit
        self._flipped[position] = self._flipped.get(position, 0) ^ 1 << bit

    @property
    def synced_size(self) -> int:
        """Position of the first byte that was changed since the last sync, or the file's size."""
        return min((change.position for change in self._unsynced), default=len(self.data))

    @property
    def is_damaged(self) -> bool:
        return any(self._flipped.values())

    @property
    def written(self) -> bytearray:
        """Bytes as programs wrote them, without the inverted bits."""
        if not self._flipped:
            return self.data
        data = self.data[:]
        for position, bits in self._flipped.items():
            data[position] ^= bits
        return data

    def _forget_flips(self, position: int, end: int) -> None:
        for flipped in [index for index in self._flipped if position <= index < end]:
            del self._flipped[flipped]

    def write(self, position: int, piece: Buffer) -> None:
        """Write bytes; a gap between the end of the file and ``position`` is filled with zeros."""
        if self._flipped:
            self._forget_flips(position, position + len(piece))
        data = self.data
        size = len(data)
        end = position + len(piece)
        if position == size:
            self._note_append(position, len(piece), size)
            data += piece
        else:
            self._unsynced.append(Change(position, bytes(data[position:end]), len(piece), size, max(size, end)))
            if position > size:
                data.extend(bytes(position - size))
            data[position:end] = piece

    def _note_append(self, position: int, length: int, size: int) -> None:
        # Small appends to one page are lost or kept as one change, because the kernel writes whole pages back.
        if len(self._unsynced) > max(self._failed_sync_end, self._synced_after_failure):
            last = self._unsynced[-1]
            if last.size_before == last.position and last.size_after == size and last.length + length <= PAGE_BYTES:
                self._unsynced[-1] = Change(last.position, b"", last.length + length, last.size_before, size + length)
                return
        self._unsynced.append(Change(position, b"", length, size, size + length))

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros."""
        old_size = len(self.data)
        if size < old_size:
            self._forget_flips(size, old_size)
            self._unsynced.append(Change(size, bytes(self.data[size:]), 0, old_size, size))
            del self.data[size:]
        elif size > old_size:
            self._unsynced.append(Change(old_size, b"", 0, old_size, size))
            self.data.extend(bytes(size - old_size))

    def sync(self) -> None:
        """Make all changes durable except those for which an earlier sync failed."""
        if self._failed_sync_end:
            self._synced_after_failure = len(self._unsynced)
        else:
            self._unsynced.clear()

    def note_failed_sync(self) -> None:
        """Record a failed sync: no later sync makes the changes so far durable."""
        self._failed_sync_end = len(self._unsynced)
        self._synced_after_failure = 0

    def lose_power(self, random: Random) -> None:
        """Keep the durable bytes; keep, drop or tear each later change at random."""
        self._apply_at_random(self._revert_all(), random)
        self.reserved = 0

    def drop_clean_pages(self, random: Random) -> None:
        """Drop the pages of a failed sync, which the kernel considers clean: programs now read the device's content."""
        clean_end = max(self._failed_sync_end, self._synced_after_failure)
        if not self._failed_sync_end:
            return
        changes = self._revert_all()
        self._apply_at_random(changes[:clean_end], random)
        for change, piece in changes[clean_end:]:
            if piece:
                self.write(change.position, piece)
            else:
                self.truncate(change.size_after)

    def _revert_all(self) -> list[tuple[Change, bytes]]:
        """Restore the bytes of the last sync; return the later changes with the bytes that they wrote."""
        for change in self._unsynced if self._flipped else ():
            self._forget_flips(change.position, max(change.position + change.length, change.size_before))
        pieces: list[bytes] = []
        for change in reversed(self._unsynced):
            pieces.append(bytes(self.data[change.position : change.position + change.length]))
            self._revert(change)
        return list(zip(self._unsynced, reversed(pieces), strict=True))

    def _apply_at_random(self, changes: list[tuple[Change, bytes]], random: Random) -> None:
        rate = random.choice(LOSS_RATES)
        for index, (change, piece) in enumerate(changes):
            if self._failed_sync_end <= index < self._synced_after_failure or random.random() >= rate:
                self._redo(change, piece)
            else:
                self._redo_partly(change, piece, random)
        self._unsynced.clear()
        self._failed_sync_end = self._synced_after_failure = 0

    def _revert(self, change: Change) -> None:
        self._resize(change.size_before)
        self.data[change.position : change.position + len(change.old)] = change.old

    def _redo(self, change: Change, piece: bytes) -> None:
        if piece:
            if change.position > len(self.data):
                self._resize(change.position)
            self.data[change.position : change.position + len(piece)] = piece
        elif change.size_after < change.size_before or change.size_after > len(self.data):
            self._resize(change.size_after)

    def _redo_partly(self, change: Change, piece: bytes, random: Random) -> None:
        torn = random.random() < 0.5
        if piece and torn:
            first_sector = change.position // SECTOR_BYTES + 1
            sectors_inside = (change.position + len(piece) - 1) // SECTOR_BYTES - first_sector + 1
            if sectors_inside > 0:
                cut = (first_sector + random.randrange(sectors_inside)) * SECTOR_BYTES
                self._redo(change, piece[: cut - change.position])
        if change.size_after > len(self.data) and random.random() < 0.5:
            self._resize(change.size_after)  # the device has the new length but not the bytes: they read as zeros

    def _resize(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
