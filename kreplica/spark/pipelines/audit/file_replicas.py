"""Replicas by the files of brokers' log directories, for the audit.

Brokers may run meanwhile: files grow, are cut off above the high watermark, and vanish by retention.  A log whose
beginning has moved is told as such, and a last batch that is not whole yet ends it.
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
from kreplica.spark.pipelines.audit.replica_comparison import OFFSET_END, Batch, Gap, LogMoved, ReplicaGone
from kreplica.spark.source.segment_files import NAME_DIGITS, FilesAsTheyAre, ReplicaFiles, replicas
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
from kreplica.storage.formats.leader_epochs import EpochEntry, LeaderEpochs
from kreplica.storage.inspection.files import BATCH_SIZE_MAX, offset_entries, offset_index
from kreplica.wire.batches import HEADER_SIZE, BatchHeader, verify_crc

READ_SIZE = 256 << 10
"""So much of a file at once: what is read is still in the processor's cache when its checksum is taken."""


class BrokerDirectories(NamedTuple):
    """One broker's log directories, and whose they are.

    :param cluster_id: None where no directory says it.
    """

    broker: int
    cluster_id: str | None
    paths: tuple[str, ...]


class FileReplica(NamedTuple):
    """A ``Replica`` by its files; travels to the executors.

    :param topic_id: None where the files do not say.
    :param wrong: what of its small files cannot be read; empty where all can.
    """

    broker: int
    files: ReplicaFiles
    size_bytes: int
    topic_id: UUID | None
    has_to: int
    epochs: tuple[EpochEntry, ...] = ()
    wrong: str = ""

    def first_offset(self) -> int:
        """Where it begins now.

        :raise ReplicaGone: it was deleted.
        :raise StorageError: this machine does not have the log directory.
        """
        directory = os.path.dirname(self.files.path)
        try:
            bases = self.files.bases()
            starts = read_offsets(FilesAsTheyAre(), f"{directory}/{LOG_START_OFFSETS}")
        except FileNotFoundError as error:
            if os.path.isdir(directory):
                raise ReplicaGone(f"{self.files.path} was deleted") from error
            raise StorageError(f"{os.uname().nodename} does not reach {directory}: {error}") from error
        return max(starts.get(self.files.partition, 0), bases[0] if bases else self.files.start)

    def cleaned_end(self) -> int:
        """Before it a cleaner may have been at work.

        Where it has been once, and the broker has not stopped in order, it may be at work just now: before any offset.
        """
        directory, disk = os.path.dirname(self.files.path), FilesAsTheyAre()
        cleaned = read_offsets(disk, f"{directory}/{CLEANER_OFFSETS}").get(self.files.partition, 0)
        return cleaned if not cleaned or disk.exists(f"{directory}/{CLEAN_SHUTDOWN}") else OFFSET_END

    def batches(self, start: int, end: int) -> Iterator[Batch | Gap]:
        """Those whose last offset lies in a range."""
        return _Walk(self.files, start, end).items()


class _Walk:
    """Through the segments of one replica, once.

    :ivar expected: no batch may begin before it.
    :ivar broken: what is wrong, from ``expected`` to the next batch that can be made out; empty where nothing is.
    """

    def __init__(self, files: ReplicaFiles, start: int, end: int) -> None:
        self._files = files
        self._start = start
        self._end = end
        self._expected = 0
        self._broken = ""
        self._is_done = False

    def items(self) -> Iterator[Batch | Gap]:
        bases = self._files.bases_from(self._start)
        if bases and bases[0] > self._start:
            raise LogMoved(f"{self._files.path} begins at {bases[0]}, no more at {self._start}")
        for base, bound in zip(bases, [*bases[1:], None], strict=True):
            if base >= self._end or self._is_done:
                break
            if not self._broken:
                self._expected = max(self._expected, base)
            try:
                file = self._files.open(base)
            except FileNotFoundError as error:
                raise LogMoved(f"{self._files.path}: segment {base} is gone") from error
            except PermissionError as error:
                raise StorageError(f"{os.uname().nodename} may not read {error.filename}") from error
            with closing(file):
                try:
                    yield from self._segment(file, base, bound)
                except OSError as error:
                    # What a device does not give is as good as damaged; other segments may be whole.
                    self._broken = self._broken or f"{os.path.basename(file.path)}: {error}"
        if self._broken and self._expected < self._end:
            yield Gap(self._expected, self._end, self._broken)

    def _segment(self, file: File, base: int, bound: int | None) -> Iterator[Batch | Gap]:
        size = file.size()
        position: int | None = self._files.position(base, self._start) if base < self._start else 0
        while position is not None and not self._is_done:
            at = position
            for place, header, data in scan_batches(file, position, size, READ_SIZE, BATCH_SIZE_MAX):
                at = place + header.size
                behind = header.next_offset
                is_sound = verify_crc(data, header)
                if self._is_wrong(header, is_sound, bound, file, at, size):
                    where = f"{os.path.basename(file.path)} at {place}"
                    told = "" if is_sound else ", and the checksum is wrong"
                    self._broken = self._broken or f"{where}: offsets {header.base_offset} to {behind - 1}{told}"
                    continue
                if behind <= self._start:
                    self._expected, self._broken = behind, ""
                    continue
                if behind > self._end:
                    self._is_done = True
                    break
                if self._broken:
                    yield Gap(self._expected, header.base_offset, self._broken)
                    self._broken = ""
                self._expected = behind
                yield Batch(header, data, is_sound)
            if self._is_done or at >= size or (bound is None and _is_torn(file, at, size)):
                return
            self._broken = self._broken or f"{os.path.basename(file.path)} at {at}: no batch"
            position = self._indexed_behind(base, at, size)

    def _is_wrong(
        self, header: BatchHeader, is_sound: bool, bound: int | None, file: File, behind: int, size: int
    ) -> bool:
        """Whether what a header says of its place cannot be: the checksum does not cover offset and length.

        :param bound: where the next segment begins.
        :param behind: where the batch ends.
        """
        if header.base_offset < self._expected or (bound is not None and header.next_offset > bound):
            return True
        if (is_sound and header.base_offset == self._expected) or behind == size:
            return False
        if behind + HEADER_SIZE > size:
            return bound is not None or not is_sound
        following = header_at(file.read_at(behind, HEADER_SIZE), 0)
        return following is None or following.base_offset < header.next_offset

    def _indexed_behind(self, base: int, position: int, size: int) -> int | None:
        """The next place where the index says that a batch begins; None where it says none."""
        path = f"{self._files.path}/{base:0{NAME_DIGITS}}.index"
        with closing(offset_index(FilesAsTheyAre(), path)) as index:
            places = (entry.position for entry in offset_entries(index, base))
            return next((place for place in places if position < place < size), None)


def _is_torn(file: File, position: int, size: int) -> bool:
    """Whether a last batch begins there that is not whole (yet)."""
    if size - position < HEADER_SIZE:
        return True
    header = header_at(file.read_at(position, HEADER_SIZE), 0)
    return header is not None and size - position < header.size <= BATCH_SIZE_MAX


def broker_directories(paths: Sequence[str], given: Mapping[int, Sequence[str]]) -> list[BrokerDirectories]:
    """Whose log directories are whose.

    :param paths: of brokers that their ``meta.properties`` name.
    :param given: by broker.
    :raise StorageError: one is not there, does not say whose it is or is another's, or they are of two clusters.
    """
    found: dict[int, list[str]] = {broker: list(own) for broker, own in given.items()}
    clusters: dict[str, str] = {}
    for path in (*paths, *(each for own in given.values() for each in own)):
        if not os.path.isdir(path):
            raise StorageError(f"{path} is no directory that this machine reaches")
        holder = next((broker for broker, own in given.items() if path in own), None)
        try:
            meta = read_meta_properties(FilesAsTheyAre(), f"{path}/{META_PROPERTIES}")
        except StorageError:
            if holder is None:
                raise
            continue  # another's, as of a cluster without ZooKeeper: the user knows whose it is
        if meta is None:
            if holder is None:
                raise StorageError(f"{path} has no {META_PROPERTIES}: say whose it is, --log-dirs BROKER={path}")
            continue
        if holder is None:
            found.setdefault(meta.broker_id, []).append(path)
        elif holder != meta.broker_id:
            raise StorageError(f"{path} is of broker {meta.broker_id}, not of {holder}")
        clusters[meta.cluster_id] = path
    if len(clusters) > 1:
        raise StorageError(f"of several clusters: {' and '.join(clusters.values())}")
    cluster_id = next(iter(clusters), None)
    return [BrokerDirectories(broker, cluster_id, tuple(dict.fromkeys(own))) for broker, own in sorted(found.items())]


def file_replicas(directories: BrokerDirectories) -> dict[TopicPartition, FileReplica]:
    """All replicas that a broker's directories hold, as they are now.

    :raise StorageError: a directory is not there, or a checkpoint is damaged.
    """
    found = {}
    for partition, files in replicas(directories.paths).items():
        try:
            found[partition] = _replica(directories.broker, files)
        except FileNotFoundError:
            continue  # deleted just now
    return found


def _replica(broker: int, files: ReplicaFiles) -> FileReplica:
    """:raise FileNotFoundError: it is not there any more."""
    disk = FilesAsTheyAre()
    names = [name for name in os.listdir(files.path) if name.endswith(".log")]
    size_bytes = sum(os.path.getsize(f"{files.path}/{name}") for name in names)
    topic_id: UUID | None = None
    epochs: tuple[EpochEntry, ...] = ()
    wrong = ""
    try:
        topic_id = read_topic_id(disk, f"{files.path}/{PARTITION_METADATA}")
        epochs = LeaderEpochs.load(f"{files.path}/{EPOCHS_NAME}", disk).entries
    except StorageError as error:
        wrong = str(error)
    return FileReplica(broker, files, size_bytes, topic_id, files.high_watermark or 0, epochs, wrong)
