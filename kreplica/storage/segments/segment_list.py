"""Ordered segments of one log: positions of batches, creation, replacement and removal."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol

from kreplica.runtime.disk import Disk
from kreplica.runtime.empty_dict import EMPTY_DICT
from kreplica.storage.producers.aborted_transactions import AbortedTransaction
from kreplica.storage.segments.batch_search import find_batch
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.storage.segments.segment import SUFFIXES, Segment
from kreplica.wire.batches import BatchHeader

DELETED_SUFFIX = ".deleted"


class Remover(Protocol):
    """A log, which removes files later."""

    def remove_later(self, paths: list[str]) -> None:
        """Remove files, after the time for which they may still be read."""


class Segments:
    """Segments ordered by base offset, at least one; the last one is active.

    :ivar remover: removes files; None to remove them at once.
    :ivar tail_positions: positions of the last batches of the active segment by base offset, for fetches of the tail;
        ``EMPTY_DICT`` until there are some.
    """

    __slots__ = ("_bases", "_list", "_open_segments", "active", "directory", "disk", "remover", "tail_positions")

    def __init__(self, directory: str, disk: Disk, open_segments: OpenSegments, segments: list[Segment]) -> None:
        self.directory = directory
        self.disk = disk
        self._open_segments = open_segments
        self._set_list(segments)
        self.remover: Remover | None = None
        self.active = segments[-1]
        self.tail_positions: dict[int, int] = EMPTY_DICT

    def _set_list(self, segments: Sequence[Segment]) -> None:
        self._list = tuple(segments)
        # Most logs have one segment, which contains all offsets.
        self._bases = tuple([segment.base_offset for segment in segments]) if len(segments) > 1 else ()

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._list)

    def __getitem__(self, index: int) -> Segment:
        return self._list[index]

    @property
    def first(self) -> Segment:
        return self._list[0]

    @property
    def closed(self) -> Sequence[Segment]:
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
            found = find_batch(segments[index], offset)
            if found is not None:
                return segments[index], *found
        return None

    def starting_from(self, offset: int) -> Sequence[Segment]:
        """Return the segment whose range contains the offset, and all later ones."""
        return self._list[self.index_of(offset) :]

    def not_durable(self, recovery_point: int) -> Sequence[Segment]:
        """Return the segment that contains the last record below the recovery point, and all later ones.

        That segment is included because it may have been closed at the recovery point with its indexes not synced.
        """
        return self.starting_from(max(recovery_point - 1, 0))

    def locate(
        self, offset: int, offset_max: int, log_end_offset: int
    ) -> tuple[Segment, int, int, BatchHeader | None] | None:
        """Return the batches from the one that contains ``offset`` to ``offset_max``, or to the end of its segment.

        :return: segment, position, size, and the first batch's header unless its position was cached; None if there is
            no batch at or after the offset.
        """
        segment = self.active
        position = self.tail_positions.get(offset)
        header = None
        if position is None:
            found = self.find(offset)
            if found is None:
                return None
            segment, position, header = found
        size = segment.size if offset_max >= log_end_offset else self._position_of_end(segment, offset_max)
        return segment, position, size - position, header

    def _position_of_end(self, segment: Segment, offset_max: int) -> int:
        """Return the end position of the segment's batches that are entirely below ``offset_max``."""
        if segment is self.active:
            position = self.tail_positions.get(offset_max)
            if position is not None:
                return position
        elif offset_max >= self.end_of(segment):
            return segment.size
        found = find_batch(segment, offset_max)
        return found[0] if found is not None else segment.size

    def end_offset_bound(self, first_offset: int, end_position: int, log_end_offset: int) -> int:
        """Return an upper bound for the offsets of batches that start at ``first_offset`` and end at a position."""
        index = self.index_of(first_offset)
        offset = self._list[index].offset_index.offset_beyond(end_position)
        return offset if offset is not None else self.end_offset(index, log_end_offset)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [from, to), for read_committed consumers (KIP-98)."""
        found = []
        for segment in self.starting_from(from_offset):
            for aborted in segment.aborted.ended_from(from_offset):
                if aborted.first_offset < to_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= to_offset:
                    return found
        return found

    # --- changes ---

    def start(self, base_offset: int, now_ms: int, allocated_bytes: int) -> Segment:
        """Create a new active segment.

        :param allocated_bytes: size to preallocate, or 0.
        :raise OSError: the segment cannot be created.
        """
        segment = self._new_segment(base_offset)
        segment.created_ms = now_ms
        segment.create()
        try:
            if allocated_bytes:
                segment.file.allocate(allocated_bytes)
        except OSError:
            segment.forget()
            self.disk.remove(segment.path())  # otherwise recovery would take its name for the log end
            raise
        self._push(segment)
        return segment

    def restart_at(self, base_offset: int) -> Segment:
        """Remove all segments, and return a new active one whose file is not created yet."""
        segment = self._new_segment(base_offset)
        self.drop_from(self.first.base_offset)
        self._push(segment)
        return segment

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment(self.directory, base_offset, self.disk, self._open_segments, size=0, new=True)

    def _push(self, segment: Segment) -> None:
        self._set_list((*self._list, segment))
        self.active = segment
        self.tail_positions = EMPTY_DICT

    def replace(self, old: Sequence[Segment], compacted: Segment) -> Segment:
        """Replace adjacent segments with the compacted one, whose files get their final names.

        :raise OSError: the device failed; the next start completes the replacement.
        """
        for segment in old:
            self._remove(segment)
        new = compacted.renamed(self.disk, self._open_segments)
        index = self._list.index(old[0])
        self._set_list((*self._list[:index], new, *self._list[index + len(old) :]))
        return new

    def drop(self, segment: Segment) -> None:
        """Remove a segment: its files get the suffix ``.deleted`` at once and are removed later."""
        self._set_list([other for other in self._list if other is not segment])
        if self._list:
            self.active = self._list[-1]
        self._remove(segment)

    def _remove(self, segment: Segment) -> None:
        paths = self.retire(segment)
        if self.remover is None:
            remove_files(self.disk, paths)
        else:
            self.remover.remove_later(paths)

    def drop_from(self, offset: int) -> int | None:
        """Remove the segments that start at or after the offset, the last one first.

        :return: base offset of the first one, or None if there is none.
        """
        dropped = [segment for segment in self._list if segment.base_offset >= offset]
        for segment in reversed(dropped):
            self.drop(segment)
        return dropped[0].base_offset if dropped else None

    def truncate_active_to(self, offset: int) -> int:
        """Remove the active segment's batch that contains ``offset`` and all later ones.

        :return: the new end offset: ``offset``, or the base offset of the removed batch that contained it.
        """
        found = find_batch(self.active, offset)
        if found is None:
            return offset
        position, header = found
        self.active.remove_from(position, header.base_offset)
        return header.base_offset

    def count_in(self, open_segments: OpenSegments) -> None:
        """Count the open files in another ``OpenSegments``."""
        self._open_segments = open_segments
        for segment in self._list:
            segment.count_in(open_segments)

    def release(self) -> None:
        """Close all files; responses that are being sent keep their own references."""
        for segment in self._list:
            segment.forget()

    def retire(self, segment: Segment) -> list[str]:
        """Give a segment's files the suffix ``.deleted``, the file of batches first, and return the new names.

        Without the file of batches the other files are ignored at startup.
        """
        segment.forget()
        return mark_deleted(self.disk, [segment.path(suffix) for suffix in SUFFIXES])


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
