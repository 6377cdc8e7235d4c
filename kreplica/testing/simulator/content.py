"""The bytes of a file in memory, and what a power loss leaves of them.

A list of the changes not yet synced allows to go back to what is durable, so neither appends nor syncs copy a file.
Knows nothing of names, open files or faults; ``kreplica.testing.simulator.disk`` puts those on top.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from kreplica.runtime.disk import Buffer

SECTOR_BYTES = 512
PAGE_BYTES = 4096
# One rate is drawn per file: with one coin per write, a long unsynced tail would hardly ever survive its first pages.
LOSS_RATES = (0.0, 0.02, 0.2, 0.5, 1.0)


class Change(NamedTuple):
    """One unsynced change of a file: enough to take it back.

    :param old: what stood at ``position`` before: overwritten bytes, or the tail that a truncation cut off.
    :param length: how many new bytes stand at ``position``; 0 for a change of length alone.
    """

    position: int
    old: bytes
    length: int
    size_before: int
    size_after: int


class Content:
    """The bytes of one file, as programs see them, and how much of that would survive a power loss."""

    __slots__ = (
        "_failed",
        "_flipped",
        "_settled",
        "_unsynced",
        "cold",
        "data",
        "linked",
        "modified_ms",
        "opened",
        "reserved",
    )

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.modified_ms = modified_ms
        self.reserved = 0
        self.opened = 0
        self.linked = True
        self.cold = False
        self._flipped: dict[int, int] = {}
        self._unsynced: list[Change] = []
        # Changes before ``_failed`` met an fsync error: Linux marks such pages clean, so no later fsync covers them.
        # Those from there to ``_settled`` are durable, and stay listed only because they lie over doomed ones.
        self._failed = 0
        self._settled = 0

    def footprint(self) -> int:
        """The bytes that it takes up on the device."""
        return max(len(self.data), self.reserved)

    def flip(self, position: int, bit: int) -> None:
        """Damage one bit of a byte.

        :raise IndexError: beyond the end of the file.
        """
        self.data[position] ^= 1 << bit
        self._flipped[position] = self._flipped.get(position, 0) ^ 1 << bit

    @property
    def synced_size(self) -> int:
        """Up to where nothing was changed since the last sync."""
        return min((change.position for change in self._unsynced), default=len(self.data))

    @property
    def is_damaged(self) -> bool:
        """Whether a byte is not what was written there."""
        return any(self._flipped.values())

    @property
    def written(self) -> bytearray:
        """Its bytes as programs wrote them, whatever was flipped since."""
        if not self._flipped:
            return self.data
        data = self.data[:]
        for position, bits in self._flipped.items():
            data[position] ^= bits
        return data

    def _overwritten(self, position: int, end: int) -> None:
        for flipped in [at for at in self._flipped if position <= at < end]:
            del self._flipped[flipped]

    def write(self, position: int, piece: Buffer) -> None:
        """Write one piece; a gap before it fills with zeros."""
        if self._flipped:
            self._overwritten(position, position + len(piece))
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
        # Small appends within a page share one fate, as they share one write-back.
        if len(self._unsynced) > max(self._failed, self._settled):
            last = self._unsynced[-1]
            if last.size_before == last.position and last.size_after == size and last.length + length <= PAGE_BYTES:
                self._unsynced[-1] = Change(last.position, b"", last.length + length, last.size_before, size + length)
                return
        self._unsynced.append(Change(position, b"", length, size, size + length))

    def truncate(self, size: int) -> None:
        """Cut, or lengthen with zeros."""
        before = len(self.data)
        if size < before:
            self._overwritten(size, before)
            self._unsynced.append(Change(size, bytes(self.data[size:]), 0, before, size))
            del self.data[size:]
        elif size > before:
            self._unsynced.append(Change(before, b"", 0, before, size))
            self.data.extend(bytes(size - before))

    def sync(self) -> None:
        """Make everything durable, but for what an earlier failed sync has already lost track of."""
        if self._failed:
            self._settled = len(self._unsynced)
        else:
            self._unsynced.clear()

    def sync_fails(self) -> None:
        """Nothing written so far is known to be durable, and no later sync will change that."""
        self._failed = len(self._unsynced)
        self._settled = 0

    def lose_power(self, random: Random) -> None:
        """Keep what is durable; keep, drop or tear each change that is not."""
        self._lose(self._take_back_all(), random)
        self.reserved = 0

    def drop_clean_pages(self, random: Random) -> None:
        """What met a failed sync counts as clean: from now on programs see of it what the device has."""
        later = max(self._failed, self._settled)
        if not self._failed:
            return
        changes = self._take_back_all()
        self._lose(changes[:later], random)
        for change, piece in changes[later:]:
            if piece:
                self.write(change.position, piece)
            else:
                self.truncate(change.size_after)

    def _take_back_all(self) -> list[tuple[Change, bytes]]:
        """See what was last synced; what was changed since, with the bytes that were written."""
        for change in self._unsynced if self._flipped else ():
            self._overwritten(change.position, max(change.position + change.length, change.size_before))
        pieces: list[bytes] = []
        for change in reversed(self._unsynced):
            pieces.append(bytes(self.data[change.position : change.position + change.length]))
            self._take_back(change)
        return list(zip(self._unsynced, reversed(pieces), strict=True))

    def _lose(self, changes: list[tuple[Change, bytes]], random: Random) -> None:
        rate = random.choice(LOSS_RATES)
        for index, (change, piece) in enumerate(changes):
            if self._failed <= index < self._settled or random.random() >= rate:
                self._redo(change, piece)
            else:
                self._redo_partly(change, piece, random)
        self._unsynced.clear()
        self._failed = self._settled = 0

    def _take_back(self, change: Change) -> None:
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
            self._resize(change.size_after)  # the length arrived, the bytes did not: they read as zeros

    def _resize(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
