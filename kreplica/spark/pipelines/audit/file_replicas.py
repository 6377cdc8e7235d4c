"""Replicas read from the files of brokers' log directories, for the audit.

The brokers may be running: files grow, are truncated above the high watermark, and are deleted by retention. If the log
start offset moves, ``LogStartMoved`` is raised; an incomplete last batch is treated as the end of the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple
from uuid import UUID

from kreplica.errors import StorageError
from kreplica.model import TopicPartition
from kreplica.runtime.disk import File
from kreplica.runtime.os_disk import ReadOnlyDisk
from kreplica.spark.pipelines.audit.replica_comparison import OFFSET_END, Batch, Gap, LogStartMoved, ReplicaDeleted
from kreplica.spark.source.segment_files import NAME_DIGITS, ReplicaFiles, find_replicas
from kreplica.storage.formats.batch_scanning import header_at, scan_batches
from kreplica.storage.formats.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    read_meta_properties,
    read_offsets,
    read_topic_id,
)
from kreplica.storage.formats.leader_epochs import FILE_NAME as EPOCHS_NAME
from kreplica.storage.formats.leader_epochs import EpochEntry, read_epochs
from kreplica.storage.inspection.files import BATCH_SIZE_MAX, offset_entries, offset_index
from kreplica.wire.batches import HEADER_SIZE, BatchHeader, verify_crc

READ_SIZE = 256 << 10
"""Bytes per file read; small enough that the data is still in the CPU cache when its checksum is computed."""


class BrokerDirectories(NamedTuple):
    """Log directories of one broker.

    :param cluster_id: None if no directory contains it.
    """

    broker: int
    cluster_id: str | None
    paths: tuple[str, ...]


class FileReplica(NamedTuple):
    """A ``Replica`` read from its files; sent to executors.

    :param topic_id: None if the files do not contain it.
    :param metadata_error: why a metadata file cannot be read; empty if all can.
    """

    broker: int
    files: ReplicaFiles
    size_bytes: int
    topic_id: UUID | None
    required_end: int
    epochs: tuple[EpochEntry, ...] = ()
    metadata_error: str = ""

    def first_offset(self) -> int:
        """Return the current log start offset.

        :raise ReplicaDeleted: the replica was deleted.
        :raise StorageError: the log directory is not accessible on this machine.
        """
        directory = os.path.dirname(self.files.path)
        try:
            bases = self.files.bases()
            starts = read_offsets(ReadOnlyDisk(), f"{directory}/{LOG_START_OFFSETS}")
        except FileNotFoundError as error:
            if os.path.isdir(directory):
                raise ReplicaDeleted(f"{self.files.path} was deleted") from error
            raise StorageError(f"{os.uname().nodename} cannot access {directory}: {error}") from error
        return max(starts.get(self.files.partition, 0), bases[0] if bases else self.files.start)

    def cleaned_end(self) -> int:
        """Return the end of the part of the log that may be compacted.

        If the log was compacted before and the broker was not shut down cleanly, compaction may be running, so the
        whole log is treated as compacted.
        """
        directory, disk = os.path.dirname(self.files.path), ReadOnlyDisk()
        cleaned = read_offsets(disk, f"{directory}/{CLEANER_OFFSETS}").get(self.files.partition, 0)
        return cleaned if not cleaned or disk.exists(f"{directory}/{CLEAN_SHUTDOWN}") else OFFSET_END

    def batches(self, start: int, end: int) -> Iterator[Batch | Gap]:
        """Yield the batches whose last offset is in a range."""
        return _SegmentScan(self.files, start, end).items()


class _SegmentScan:
    """A single pass over the segments of one replica."""

    def __init__(self, files: ReplicaFiles, start: int, end: int) -> None:
        self._files = files
        self._start = start
        self._end = end
        self._expected = 0
        """Lower bound of the next batch's base offset."""
        self._damage = ""
        """Description of the damage from ``_expected`` to the next valid batch; empty if there is none."""
        self._is_done = False

    def items(self) -> Iterator[Batch | Gap]:
        bases = self._files.bases_from(self._start)
        if bases and bases[0] > self._start:
            raise LogStartMoved(f"{self._files.path} starts at {bases[0]}, no longer at {self._start}")
        for base, bound in zip(bases, [*bases[1:], None], strict=True):
            if base >= self._end or self._is_done:
                break
            if not self._damage:
                self._expected = max(self._expected, base)
            try:
                file = self._files.open(base)
            except FileNotFoundError as error:
                raise LogStartMoved(f"{self._files.path}: segment {base} was deleted") from error
            except PermissionError as error:
                raise StorageError(f"{os.uname().nodename} has no permission to read {error.filename}") from error
            with closing(file):
                try:
                    yield from self._segment(file, base, bound)
                except OSError as error:
                    # An I/O error is reported as damage; other segments may be intact.
                    self._damage = self._damage or f"{os.path.basename(file.path)}: {error}"
        if self._damage and self._expected < self._end:
            yield Gap(self._expected, self._end, self._damage)

    def _segment(self, file: File, base: int, bound: int | None) -> Iterator[Batch | Gap]:
        size = file.size()
        position: int | None = self._files.position(base, self._start) if base < self._start else 0
        while position is not None and not self._is_done:
            end_position = position
            for batch_position, header, data in scan_batches(file, position, size, READ_SIZE, BATCH_SIZE_MAX):
                end_position = batch_position + header.size
                next_offset = header.next_offset
                crc_is_valid = verify_crc(data, header)
                if self._is_invalid_header(header, crc_is_valid, bound, file, end_position, size):
                    location = f"{os.path.basename(file.path)} at {batch_position}"
                    note = "" if crc_is_valid else ", and the checksum is wrong"
                    text = f"{location}: offsets {header.base_offset} to {next_offset - 1}{note}"
                    self._damage = self._damage or text
                    continue
                if next_offset <= self._start:
                    self._expected, self._damage = next_offset, ""
                    continue
                if next_offset > self._end:
                    self._is_done = True
                    break
                if self._damage:
                    yield Gap(self._expected, header.base_offset, self._damage)
                    self._damage = ""
                self._expected = next_offset
                yield Batch(header, data, crc_is_valid)
            if self._is_done or end_position >= size or (bound is None and _is_torn(file, end_position, size)):
                return
            self._damage = self._damage or f"{os.path.basename(file.path)} at {end_position}: not a batch"
            position = self._next_indexed_position(base, end_position, size)

    def _is_invalid_header(
        self, header: BatchHeader, crc_is_valid: bool, bound: int | None, file: File, end_position: int, size: int
    ) -> bool:
        """Return True if the base offset or the length in a header is impossible; the checksum does not cover them.

        :param bound: base offset of the next segment.
        :param end_position: file position after the batch.
        """
        if header.base_offset < self._expected or (bound is not None and header.next_offset > bound):
            return True
        if (crc_is_valid and header.base_offset == self._expected) or end_position == size:
            return False
        if end_position + HEADER_SIZE > size:
            return bound is not None or not crc_is_valid
        following = header_at(file.read_at(end_position, HEADER_SIZE), 0)
        return following is None or following.base_offset < header.next_offset

    def _next_indexed_position(self, base: int, position: int, size: int) -> int | None:
        """Return the next batch position in the index; None if there is none."""
        path = f"{self._files.path}/{base:0{NAME_DIGITS}}.index"
        with closing(offset_index(ReadOnlyDisk(), path)) as index:
            indexed_positions = (entry.position for entry in offset_entries(index, base))
            return next((indexed for indexed in indexed_positions if position < indexed < size), None)


def _is_torn(file: File, position: int, size: int) -> bool:
    """Return True if the last batch is incomplete; the broker may be writing it."""
    if size - position < HEADER_SIZE:
        return True
    header = header_at(file.read_at(position, HEADER_SIZE), 0)
    return header is not None and size - position < header.size <= BATCH_SIZE_MAX


def broker_directories(paths: Sequence[str], paths_by_broker: Mapping[int, Sequence[str]]) -> list[BrokerDirectories]:
    """Assign log directories to their brokers.

    :param paths: directories whose ``meta.properties`` contain the broker ID.
    :param paths_by_broker: directories by broker.
    :raise StorageError: a directory does not exist, has no broker ID or a different one, or the directories belong to
        several clusters.
    """
    found: dict[int, list[str]] = {broker: list(own) for broker, own in paths_by_broker.items()}
    clusters: dict[str, str] = {}
    for path in (*paths, *(each for own in paths_by_broker.values() for each in own)):
        if not os.path.isdir(path):
            raise StorageError(f"{path} is not a directory that this machine can access")
        owner = next((broker for broker, own in paths_by_broker.items() if path in own), None)
        try:
            meta = read_meta_properties(ReadOnlyDisk(), f"{path}/{META_PROPERTIES}")
        except StorageError:
            if owner is None:
                raise
            continue  # in another format, such as that of a KRaft cluster: the user specified the broker
        if meta is None:
            if owner is None:
                raise StorageError(f"{path} has no {META_PROPERTIES}: specify its broker with --log-dirs BROKER={path}")
            continue
        if owner is None:
            found.setdefault(meta.broker_id, []).append(path)
        elif owner != meta.broker_id:
            raise StorageError(f"{path} belongs to broker {meta.broker_id}, not to {owner}")
        clusters[meta.cluster_id] = path
    if len(clusters) > 1:
        raise StorageError(f"the directories belong to several clusters: {' and '.join(clusters.values())}")
    cluster_id = next(iter(clusters), None)
    return [BrokerDirectories(broker, cluster_id, tuple(dict.fromkeys(own))) for broker, own in sorted(found.items())]


def file_replicas(directories: BrokerDirectories) -> dict[TopicPartition, FileReplica]:
    """Return all replicas in a broker's log directories.

    :raise StorageError: a directory does not exist, or a checkpoint is damaged.
    """
    found = {}
    for partition, files in find_replicas(directories.paths).items():
        try:
            found[partition] = _replica(directories.broker, files)
        except FileNotFoundError:
            continue  # deleted in the meantime
    return found


def _replica(broker: int, files: ReplicaFiles) -> FileReplica:
    """Read the state of a replica from its files.

    :raise FileNotFoundError: the replica was deleted.
    """
    disk = ReadOnlyDisk()
    names = [name for name in os.listdir(files.path) if name.endswith(".log")]
    size_bytes = sum(os.path.getsize(f"{files.path}/{name}") for name in names)
    topic_id: UUID | None = None
    epochs: tuple[EpochEntry, ...] = ()
    metadata_error = ""
    try:
        topic_id = read_topic_id(disk, f"{files.path}/{PARTITION_METADATA}")
        epochs = read_epochs(f"{files.path}/{EPOCHS_NAME}", disk)
    except StorageError as error:
        metadata_error = str(error)
    return FileReplica(broker, files, size_bytes, topic_id, files.high_watermark or 0, epochs, metadata_error)
