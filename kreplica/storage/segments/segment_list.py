"""Ordered segments of one log, and their removal."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from kreplica.runtime.disk import Disk
from kreplica.storage.segments.segment import SUFFIXES, Segment
from kreplica.wire.batches import BatchHeader

DELETED_SUFFIX = ".deleted"


class Segments:
    """Segments ordered by base offset, at least one; the last one is active.

    :param remove: called with paths to remove now or later.
    """

    def __init__(self, disk: Disk, segments: list[Segment], remove: Callable[[list[str]], None]) -> None:
        self._disk = disk
        self._list = segments
        self._bases = [segment.base_offset for segment in segments]
        self.remove = remove
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(tuple(self._list))

    def __getitem__(self, index: int) -> Segment:
        return self._list[index]

    @property
    def first(self) -> Segment:
        return self._list[0]

    @property
    def closed(self) -> list[Segment]:
        """All segments except the active one, oldest first."""
        return self._list[:-1]

    @property
    def size_bytes(self) -> int:
        """Total size of the batches."""
        return sum(segment.size for segment in self._list)

    def index_of(self, offset: int) -> int:
        """Return the index of the segment whose range contains the offset; 0 for offsets below the first."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def end_offset(self, index: int, log_end_offset: int) -> int:
        """Return the base offset of the next segment, or the log end offset."""
        return self._bases[index + 1] if index + 1 < len(self._bases) else log_end_offset

    def end_of(self, segment: Segment) -> int:
        """Return the base offset of the segment after a closed one."""
        return self._bases[bisect_right(self._bases, segment.base_offset)]

    def find(self, offset: int) -> tuple[Segment, int, BatchHeader] | None:
        """Return segment, position and header of the first batch that ends at or after the offset, or None.

        Because compaction leaves gaps, the batch may be in a later segment than the one whose range contains the
        offset.
        """
        segments = self._list
        for index in range(self.index_of(offset), len(segments)):
            found = segments[index].find(offset)
            if found is not None:
                return segments[index], *found
        return None

    def starting_from(self, offset: int) -> list[Segment]:
        """Return the segment whose range contains the offset, and all later ones."""
        return self._list[self.index_of(offset) :]

    def not_durable(self, recovery_point: int) -> list[Segment]:
        """Return the segment that contains the last record below the recovery point, and all later ones.

        That segment is included because it may have been closed at the recovery point with its indexes not synced.
        """
        return self.starting_from(max(recovery_point - 1, 0))

    def push(self, segment: Segment) -> None:
        """Append a new active segment."""
        self._list.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace adjacent segments with the compacted one."""
        at = self._list.index(old[0])
        self._list[at : at + len(old)] = [new]
        self._bases = [segment.base_offset for segment in self._list]

    def drop(self, segment: Segment) -> None:
        """Remove a segment: its files get the suffix ``.deleted`` at once and are removed later."""
        self._list.remove(segment)
        self._bases = [other.base_offset for other in self._list]
        if self._list:
            self.active = self._list[-1]
        self.remove(self.retire(segment))

    def retire(self, segment: Segment) -> list[str]:
        """Give a segment's files the suffix ``.deleted``, the file of batches first, and return the new names.

        Without the file of batches the other files are ignored at startup.
        """
        segment.forget()
        return mark_deleted(self._disk, [segment.path(suffix) for suffix in SUFFIXES])


def mark_deleted(disk: Disk, paths: list[str]) -> list[str]:
    """Rename existing files to ``.deleted`` and return the new names."""
    deleted = []
    for path in paths:
        try:
            disk.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            continue
        deleted.append(path + DELETED_SUFFIX)
    return deleted


def remove_files(disk: Disk, paths: list[str]) -> None:
    """Remove files, ignoring missing ones."""
    for path in paths:
        try:
            disk.remove(path)
        except FileNotFoundError:
            pass
