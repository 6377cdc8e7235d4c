"""Compares the indexes of a closed segment with its batches, and rebuilds those that differ.

Readers trust the indexes below the recovery point: a wrong one hides records, or exposes aborted records.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kreplica.runtime.disk import Disk
from kreplica.storage.formats.batch_scanning import scan_headers
from kreplica.storage.inspection import files
from kreplica.storage.inspection.index_checks import Mismatch, OffsetIndexCheck, TimeIndexCheck
from kreplica.storage.producers.aborted_transactions import AbortedTransaction, AbortedTransactions
from kreplica.storage.recovery.aborted_recovery import SegmentFile, recompute
from kreplica.storage.segments.damage import damage_if_unreadable
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.storage.segments.segment import (
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    segment_path,
)

_SHARE_MIN = 0.25
"""Minimum size of an offset index as a fraction of a rebuilt one. A smaller one was truncated, which only makes
searches slower.
"""
_ENTRIES_MIN = 16
"""Rebuilt indexes with fewer entries are not compared, because each restart and truncation omits an entry."""


@dataclass(frozen=True, slots=True)
class WrongIndexes:
    """Replacements for the wrong indexes of a segment.

    :param reasons: one line for each kind of index that differs from the batches; empty if none does.
    :param rebuilt: segment with new offset and time indexes; None if both files are correct.
    :param aborted: new content of the index of aborted transactions; None if that file is correct.
    """

    reasons: Sequence[str]
    rebuilt: Segment | None
    aborted: Sequence[AbortedTransaction] | None


@dataclass(frozen=True, slots=True)
class IndexesToCheck:
    """Indexes of one closed segment; ``check`` may run in any thread.

    :param segments: segments of the log up to this one, oldest first.
    """

    disk: Disk
    segments: Sequence[SegmentFile]
    index_interval_bytes: int
    compacted: bool

    def check(self) -> WrongIndexes:
        """Compare the indexes with the headers of the batches.

        :raise Damage: the segment cannot be read.
        :raise FileNotFoundError: a segment was removed or compacted.
        """
        rebuilt, reasons = self._check_positions()
        recomputed = recompute(self.disk, self.segments, compacted=self.compacted)
        path = self._path(TRANSACTION_INDEX_SUFFIX)
        is_correct = recomputed.accepts(list(AbortedTransactions(path, self.disk)))
        if not is_correct:
            reasons = [*reasons, f"{path}: the aborted transactions differ from the markers in the segment"]
        return WrongIndexes(reasons, rebuilt, None if is_correct else recomputed.aborted)

    def _path(self, suffix: str) -> str:
        target = self.segments[-1]
        return segment_path(posixpath.dirname(target.path), target.base_offset, suffix)

    def _check_positions(self) -> tuple[Segment | None, list[str]]:
        """Return the segment with new indexes, and the problems of the indexes on disk."""
        target = self.segments[-1]
        offsets = files.offset_index(self.disk, self._path(INDEX_SUFFIX))
        times = files.time_index(self.disk, self._path(TIME_INDEX_SUFFIX))
        try:
            checks = (OffsetIndexCheck(offsets, target.base_offset), TimeIndexCheck(times, target.base_offset))
            rebuilt, wrong = self._walk(checks)
            is_shorter = times.size < rebuilt.time_index.size_bytes
            if is_shorter and _last_time(times, target.base_offset) < rebuilt.largest[0]:
                wrong.append(f"{times.path}: ends before the segment's largest timestamp")
            entries = len(rebuilt.offset_index)
            if entries >= _ENTRIES_MIN and offsets.size < _SHARE_MIN * entries * offsets.entry_size:
                wrong.append(f"{offsets.path}: the file was truncated")
        finally:
            offsets.close()
            times.close()
        return (rebuilt if wrong else None), wrong

    def _walk(self, checks: Sequence[OffsetIndexCheck | TimeIndexCheck]) -> tuple[Segment, list[str]]:
        target = self.segments[-1]
        directory = posixpath.dirname(target.path)
        rebuilt = Segment(directory, target.base_offset, self.disk, OpenSegments(), size=0, new=True)
        wrong: dict[int, str] = {}

        def note(number: int, mismatches: Iterator[Mismatch]) -> None:
            for entry_position, why in mismatches:
                wrong.setdefault(number, f"{('.index', '.timeindex')[number]}, position {entry_position}: {why}")

        next_offset = target.base_offset
        with damage_if_unreadable(target.path, target.base_offset):
            file = self.disk.open(target.path)
            try:
                for position, header in scan_headers(file, 0, target.size):
                    for number, check in enumerate(checks):
                        note(number, check.check_batch(position, header))
                    rebuilt.add_batch(header, position, self.index_interval_bytes)
                    next_offset = header.next_offset
            finally:
                file.close()
        for number, check in enumerate(checks):
            note(number, check.check_end(target.size, next_offset))
        rebuilt.time_index.append(*rebuilt.largest)
        return rebuilt, [f"segment {target.base_offset}{why}" for why in wrong.values()]


def _last_time(times: files.EntryFile, base_offset: int) -> int:
    last = -1
    for entry in files.time_entries(times, base_offset):
        last = entry.timestamp_ms
    return last
