"""State of an opened log, and of a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kreplica.runtime.disk import Disk
from kreplica.storage.formats.leader_epochs import LeaderEpochs
from kreplica.storage.producers.producer_state import ProducerStates
from kreplica.storage.producers.snapshots import SnapshotFiles
from kreplica.storage.recovery.aborted_checkpoint import AbortedCheckpoint
from kreplica.storage.segments.damage import Damage
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.storage.segments.segment import Segment
from kreplica.storage.segments.segment_list import Segments


@dataclass(slots=True)
class Opened:
    """State of an opened log.

    :param closed_in_order: True if the log was closed cleanly and no index had to be rebuilt.
    :param was_truncated: True if records after the last whole batch were removed.
    :param damages: known damage that is excluded from reads: the first of each segment, by base offset.
    """

    segments: Segments
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    leader_epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: SnapshotFiles
    aborted_checkpoint: AbortedCheckpoint
    closed_in_order: bool
    was_truncated: bool = False
    damages: Mapping[int, Damage] = field(default_factory=dict)


def empty_log(path: str, disk: Disk, producer_expiration_ms: int, now_ms: int) -> Opened:
    """Return the state of a new log in an empty directory, without file access."""
    open_segments = OpenSegments()
    first = Segment(path, 0, disk, open_segments, size=0, new=True)
    first.created_ms = now_ms
    return Opened(
        Segments(path, disk, open_segments, [first]),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        leader_epochs=LeaderEpochs(path, disk),
        producers=ProducerStates(producer_expiration_ms),
        snapshots=SnapshotFiles(path, disk),
        aborted_checkpoint=AbortedCheckpoint(path, disk),
        closed_in_order=True,
    )
