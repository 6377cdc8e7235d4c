"""State of all logs of a directory after a clean shutdown, in one file, so that the next start opens no log files.

``docs/decisions/0080-one-file-for-all-closed-logs.md`` describes why a row is never used for a log that has changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import crc32c
from twisted.logger import Logger

from kreplica.errors import StorageError
from kreplica.model import NO_EPOCH, ZERO_UUID, TopicPartition
from kreplica.runtime.disk import Disk
from kreplica.storage.formats.checkpoints import NO_BROKER_EPOCH, PARTITION_METADATA
from kreplica.storage.formats.leader_epochs import FILE_NAME as LEADER_EPOCHS_FILE
from kreplica.storage.formats.leader_epochs import EpochEntry, LeaderEpochs
from kreplica.storage.formats.names import directory_name
from kreplica.storage.log.log import Log
from kreplica.storage.producers.producer_state import ProducerStates
from kreplica.storage.producers.snapshots import SNAPSHOT_SUFFIX, SnapshotFiles
from kreplica.storage.recovery.aborted_checkpoint import AbortedCheckpoint
from kreplica.storage.recovery.opened_log import Opened
from kreplica.storage.segments.open_segments import OpenSegments
from kreplica.storage.segments.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment, segment_path
from kreplica.storage.segments.segment_list import Segments

FILE_NAME = "kreplica-closed-logs"
_VERSION = 0
_MISSING_NS = -1
"""Modification time of an active segment without a file."""

_log = Logger()


class ClosedLog(NamedTuple):
    """State of one log after it was closed.

    :param topic_id: zero if the cluster has no topic IDs.
    :param directory_ns: modification time of the log's directory.
    :param active_ns: modification time of the active segment's file.
    :param largest: largest timestamp of the active segment, and the last offset of its batch.
    :param producers_count: number of producers; their state is in the snapshot at the log end.
    :param has_snapshot: True if there is a snapshot at the log end.
    :param segments: base offset and size of each segment, oldest first.
    :param epochs: leader epochs and their start offsets, oldest first.
    """

    topic_id: UUID
    log_start_offset: int
    log_end_offset: int
    directory_ns: int
    active_ns: int
    largest: Sequence[int]
    producers_count: int
    has_snapshot: bool
    segments: Sequence[Sequence[int]]
    epochs: Sequence[Sequence[int]]


def describe(log: Log) -> ClosedLog | None:
    """Return the state of a log that was just closed; may run in any thread.

    :return: None if the state can be determined only by opening the files: aborted transactions, damage, unknown
        leader epochs, or files that an interrupted operation left behind.
    """
    disk, segments = log.disk, log.segments
    largest, end_offset = segments.active.known_largest, log.log_end_offset
    producers = log.producers
    if log.failure is not None or log.damage.by_segment or log.derived_state.is_outdated or largest is None:
        return None
    names = set(disk.list_directory(log.path))
    snapshot = f"{end_offset:020d}{SNAPSHOT_SUFFIX}"
    if (
        not _has_only_files_of(segments, names - {snapshot, LEADER_EPOCHS_FILE, PARTITION_METADATA})
        or (log.topic_id != ZERO_UUID) != (PARTITION_METADATA in names)
        or (len(producers) and snapshot not in names)
        or producers.replicated_after_gap is not None
        or (segments.size_bytes and log.leader_epochs.epoch_of(end_offset - 1) == NO_EPOCH)
    ):
        return None
    active = segments.active
    return ClosedLog(
        log.topic_id,
        log.log_start_offset,
        end_offset,
        disk.status(log.path).modified_ns,
        disk.status(active.path()).modified_ns if _name(active.base_offset, LOG_SUFFIX) in names else _MISSING_NS,
        largest,
        len(producers),
        snapshot in names,
        [(segment.base_offset, segment.size) for segment in segments],
        log.leader_epochs.entries,
    )


def _has_only_files_of(segments: Segments, names: set[str]) -> bool:
    """Return True if the names are those of the batches, complete indexes and snapshots of these segments."""
    for segment in segments:
        base = segment.base_offset
        files = {_name(base, suffix) for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
        if segment.size and not files <= names:
            return False
        names -= {*files, _name(base, SNAPSHOT_SUFFIX)}
    return not names


def _name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def reopen(
    closed: ClosedLog, path: str, disk: Disk, *, log_start_offset: int, producer_expiration_ms: int, now_ms: int
) -> Opened | None:
    """Return the state of a log that has not changed since it was closed; may run in any thread.

    :param log_start_offset: start offset according to the checkpoint, or 0.
    :return: None if the log may have changed.
    :raise OSError: the device failed.
    """
    (first_base, _), (active_base, active_size) = closed.segments[0], closed.segments[-1]
    if closed.log_start_offset != max(log_start_offset, first_base) or not _is_unchanged(
        closed, path, disk, segment_path(path, active_base, LOG_SUFFIX), active_size
    ):
        return None
    snapshots = SnapshotFiles(path, disk)
    producers = ProducerStates(producer_expiration_ms)
    if closed.producers_count:
        try:
            producers.restore(snapshots.load(closed.log_end_offset))
        except (StorageError, FileNotFoundError):
            return None
        producers.expire(now_ms)
    if closed.has_snapshot and closed.log_end_offset != active_base:
        snapshots.note_interim(closed.log_end_offset)
    open_segments = OpenSegments()
    segments = []
    for base, size in closed.segments:
        segment = Segment(path, base, disk, open_segments, size=size, new=not size)
        segment.created_ms = now_ms
        segments.append(segment)
    timestamp_ms, offset = closed.largest
    segments[-1].resume(active_size, (timestamp_ms, offset))
    entries = [EpochEntry(epoch, start_offset) for epoch, start_offset in closed.epochs]
    epochs = LeaderEpochs(path, disk, entries)
    epochs.truncate_to(closed.log_end_offset)  # like ``Loading``: an epoch without a batch does not survive its process
    return Opened(
        Segments(path, disk, open_segments, segments),
        log_start_offset=closed.log_start_offset,
        log_end_offset=closed.log_end_offset,
        recovery_point=closed.log_end_offset,
        leader_epochs=epochs,
        producers=producers,
        snapshots=snapshots,
        aborted_checkpoint=AbortedCheckpoint(path, disk),
        closed_in_order=True,
    )


def _is_unchanged(closed: ClosedLog, path: str, disk: Disk, active_path: str, active_size: int) -> bool:
    """Return True if no file was added, removed or replaced, and the active segment's size and date are unchanged."""
    try:
        if disk.status(path).modified_ns != closed.directory_ns:
            return False
        if closed.active_ns == _MISSING_NS:
            return True
        active = disk.status(active_path)
    except FileNotFoundError:
        return False
    return active.size == active_size and active.modified_ns == closed.active_ns


def write_closed_logs(
    disk: Disk, directory: str, broker_epoch: int, logs: Mapping[TopicPartition, ClosedLog]
) -> None:
    """Write the file durably, before the clean-shutdown marker.

    :raise OSError: the write failed.
    """
    rows = [(directory_name(key), closed.topic_id.hex, *closed[1:]) for key, closed in logs.items()]
    body = json.dumps(rows, separators=(",", ":")).encode()
    head = f"{_VERSION} {broker_epoch} {crc32c.crc32c(body)}\n".encode()
    disk.write_file(f"{directory}/{FILE_NAME}", head + body)


def read_closed_logs(disk: Disk, directory: str, broker_epoch: int | None) -> dict[str, ClosedLog]:
    """Read the file.

    :param broker_epoch: broker epoch in the clean-shutdown marker, None without a marker.
    :return: rows by directory name; empty if the file is missing, damaged, or not from the shutdown of the marker.
    """
    if broker_epoch is None or broker_epoch == NO_BROKER_EPOCH:
        return {}
    try:
        data = disk.read_file(f"{directory}/{FILE_NAME}")
    except FileNotFoundError:
        return {}
    head, _, body = data.partition(b"\n")
    if head.split() != [b"%d" % number for number in (_VERSION, broker_epoch, crc32c.crc32c(body))]:
        _log.warn("{directory}/{name} is ignored: it is damaged or outdated", directory=directory, name=FILE_NAME)
        return {}
    return dict(_rows(json.loads(body)))


def _rows(values: Sequence[Sequence[Any]]) -> Iterator[tuple[str, ClosedLog]]:
    topic_ids: dict[str, UUID] = {}
    for name, digits, *row in values:
        topic_id = topic_ids.get(digits)
        if topic_id is None:
            topic_id = topic_ids[digits] = UUID(hex=digits)  # one object for all logs of a topic
        yield name, ClosedLog(topic_id, *row)


def remove_closed_logs(disk: Disk, directory: str) -> bool:
    """Remove the file without a sync of the directory, and return True if it existed."""
    try:
        disk.remove(f"{directory}/{FILE_NAME}")
    except FileNotFoundError:
        return False
    return True
