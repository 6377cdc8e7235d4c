"""Restores the state of a log's producers from its latest snapshot and the batches after it."""

from __future__ import annotations

from collections.abc import Container, Mapping

from kreplica.errors import KafkaError
from kreplica.storage.producers.producer_state import ProducerStates
from kreplica.storage.producers.snapshots import SnapshotFiles
from kreplica.storage.segments.batch_validation import read_marker
from kreplica.storage.segments.damage import Damage, damage_if_unreadable
from kreplica.storage.segments.segment import Segment
from kreplica.storage.segments.segment_list import Segments
from kreplica.wire.batches import BatchHeader
from kreplica.wire.control_records import EndMarker


def restore_producers(
    producers: ProducerStates,
    snapshots: SnapshotFiles,
    segments: Segments,
    start_offset: int,
    last: int,
    rebuilt: Mapping[Segment, int],
    without_producers: Container[Segment] = (),
) -> None:
    """Load the latest snapshot up to ``last`` and apply all later batches.

    :param rebuilt: first offset that recovery has read, by segment; its aborted transactions are rewritten.
    :param without_producers: segments of ``rebuilt`` in which recovery has read no batch of a producer.
    """
    found = snapshots.load_latest(segments.first.base_offset, last)
    from_offset, entries = found if found is not None else (start_offset, [])
    producers.restore(entries, has_gap=found is None and start_offset > 0)
    for segment in segments.starting_from(from_offset):
        if not segment.size or (segment in without_producers and _is_read_from(rebuilt[segment], segment, from_offset)):
            continue
        with damage_if_unreadable(segment.path(), segment.base_offset):
            for position, header in segment.headers(segment.offset_index.lookup(from_offset)):
                if header.last_offset < from_offset or header.producer_id < 0:
                    continue
                marker = _marker_of(segment, position, header) if header.is_control else None
                aborted = producers.apply(header, marker)
                if aborted is not None and segment in rebuilt:
                    segment.aborted.append(aborted)


def _is_read_from(first: int, segment: Segment, from_offset: int) -> bool:
    """Return True if recovery has read all batches of a segment from an offset on."""
    return first <= max(from_offset, segment.base_offset)


def _marker_of(segment: Segment, position: int, header: BatchHeader) -> EndMarker | None:
    try:
        return read_marker(segment.file.read_at(position, header.size))
    except KafkaError as error:
        raise Damage(segment.path(), segment.base_offset, position, error.message) from error
