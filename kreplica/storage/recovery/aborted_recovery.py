"""Finds the aborted transactions of a segment in the batches of the log, and checks the indexes of a log."""

from __future__ import annotations

import posixpath
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from twisted.logger import Logger

from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.disk import Disk
from kreplica.storage.formats.batch_scanning import scan_headers
from kreplica.storage.producers.aborted_transactions import AbortedTransaction
from kreplica.storage.producers.producer_state import ProducerStates
from kreplica.storage.producers.snapshots import SnapshotFiles
from kreplica.storage.recovery.aborted_checkpoint import AbortedCheckpoint
from kreplica.storage.segments.batch_validation import read_marker
from kreplica.storage.segments.damage import Damage, damage_if_unreadable
from kreplica.storage.segments.segment import Segment
from kreplica.storage.segments.segment_list import Segments

_log = Logger()


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment's file of batches; immutable, so it may be passed to another thread."""

    path: str
    base_offset: int
    size: int

    @classmethod
    def of(cls, segment: Segment) -> SegmentFile:
        return cls(segment.path(), segment.base_offset, segment.size)


@dataclass(frozen=True, slots=True)
class RecomputedAborts:
    """Aborted transactions found in the batches.

    :param is_exact: the state of all producers at the segment's start was known and compaction removed no batch, so the
        first offsets are exact.
    """

    aborted: Sequence[AbortedTransaction]
    is_exact: bool

    def accepts(self, found: Sequence[AbortedTransaction]) -> bool:
        """True if an index with these entries hides all aborted records and, if exact, no others."""
        if self.is_exact:
            return list(found) == list(self.aborted)
        found_offsets = {(each.producer_id, each.last_offset): each.first_offset for each in found}
        expected = {(each.producer_id, each.last_offset): each.first_offset for each in self.aborted}
        return all(key in found_offsets and found_offsets[key] <= first for key, first in expected.items())


def recompute(disk: Disk, files: Sequence[SegmentFile], *, compacted: bool) -> RecomputedAborts:
    """Find the aborted transactions of a segment; may run in any thread.

    :param files: segments of the log up to this one, oldest first.
    :raise Damage: an end marker cannot be read.
    :raise FileNotFoundError: a segment was removed or compacted.
    """
    target = files[-1]
    snapshots = SnapshotFiles(posixpath.dirname(target.path), disk)
    found = snapshots.load_latest(files[0].base_offset, target.base_offset)
    from_offset, entries = found if found is not None else (files[0].base_offset, [])
    producers = ProducerStates(expiration_ms=0)
    producers.restore(entries)
    aborted: list[AbortedTransaction] = []
    for segment_file, next_file in zip_longest(files, files[1:]):
        if next_file is None or next_file.base_offset > from_offset:
            aborted = _apply_segment(disk, segment_file, from_offset, producers)
    is_known = from_offset == 0 or (found is not None and from_offset == target.base_offset)
    return RecomputedAborts(aborted, is_known and not compacted)


def _apply_segment(
    disk: Disk, segment_file: SegmentFile, from_offset: int, producers: ProducerStates
) -> list[AbortedTransaction]:
    """Process a segment's batches from an offset on, and return the transactions aborted in it."""
    aborted: list[AbortedTransaction] = []
    with damage_if_unreadable(segment_file.path, segment_file.base_offset):
        file = disk.open(segment_file.path)
        try:
            for position, header in scan_headers(file, 0, segment_file.size):
                if header.last_offset < from_offset or header.producer_id < 0:
                    continue
                marker = None
                if header.is_control:
                    try:
                        marker = read_marker(file.read_at(position, header.size))
                    except KafkaError as error:
                        raise Damage(segment_file.path, segment_file.base_offset, position, error.message) from error
                ended = producers.apply(header, marker)
                if ended is not None:
                    aborted.append(ended)
        finally:
            file.close()
    return aborted


def check_aborted_indexes(
    disk: Disk,
    segments: Segments,
    checkpoint: AbortedCheckpoint,
    rebuilt: Container[Segment],
    end_offset: int,
    *,
    clean_shutdown: bool,
    compacted: bool,
    name: TopicPartition,
) -> None:
    """Rebuild indexes of aborted transactions that do not match their checksum, and update the checksums.

    :param rebuilt: segments that recovery has read, with their indexes.
    :raise OSError: the device failed.
    """
    files: list[SegmentFile] = []
    for index, segment in enumerate(segments):
        files.append(SegmentFile.of(segment))
        if segment in rebuilt:
            if checkpoint.has_row(segment) or not segment.has_no_indexes:
                checkpoint.update(segment)
        elif clean_shutdown or segment is not segments.active:
            if checkpoint.has_row(segment):
                is_correct = checkpoint.matches(segment)
            else:
                is_correct = segment.aborted.is_plausible(segment.base_offset, segments.end_offset(index, end_offset))
            if not is_correct:
                _log.warn(
                    "{log}: rebuilding the damaged index of aborted transactions of segment {base}",
                    log=name,
                    base=segment.base_offset,
                )
                segment.aborted.replace(recompute(disk, files, compacted=compacted).aborted)
                checkpoint.update(segment)
    checkpoint.write(segments)
