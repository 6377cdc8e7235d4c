"""Restores the leader epochs of a log from their file and the batches that recovery has read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twisted.logger import Logger

from kreplica.errors import StorageError
from kreplica.model import TopicPartition
from kreplica.runtime.disk import Disk
from kreplica.storage.formats.leader_epochs import LeaderEpochs
from kreplica.storage.segments.segment_list import Segments

_log = Logger()


def restore_epochs(
    disk: Disk,
    segments: Segments,
    found: Sequence[tuple[int, int]],
    read_from: int,
    start_offset: int,
    end_offset: int,
    *,
    has_file: bool,
    rewrite: bool,
    name: TopicPartition,
) -> LeaderEpochs:
    """Return the leader epochs of a log, and write their file if recovery relies on it.

    :param found: leader epoch and first offset in the batches that recovery has read; they replace those of the file,
        which is older.
    :param read_from: offset of the first batch that recovery has read; the log end if it has read none.
    :param rewrite: write the file even if it is unchanged.
    :param name: for log messages.
    """
    directory = segments.directory
    try:
        epochs = LeaderEpochs.load(directory, disk) if has_file else LeaderEpochs(directory, disk)
    except StorageError as error:
        _log.warn("{log}: reading leader epochs from the batches, because {why}", log=name, why=str(error))
        epochs = LeaderEpochs(directory, disk)
    knows_earlier_epochs = epochs.entries or read_from <= segments.first.base_offset
    epochs.truncate_to(min(read_from, end_offset))
    for epoch, offset in found if knows_earlier_epochs else _all_epochs(segments):
        if offset < end_offset:
            epochs.assign(epoch, offset)
    epochs.truncate_start(start_offset)
    if segments.closed or rewrite:
        epochs.write(force=rewrite)
    return epochs


def _all_epochs(segments: Segments) -> Iterator[tuple[int, int]]:
    for segment in segments:
        for _, header in segment.headers():
            yield header.partition_leader_epoch, header.base_offset
