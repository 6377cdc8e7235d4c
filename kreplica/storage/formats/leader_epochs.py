"""Start offsets of leader epochs (KIP-101), in Kafka's ``leader-epoch-checkpoint`` file.

A leader change modifies only memory. The file is written when a segment is closed, after a truncation and at a clean
shutdown, so that 10,000 partitions can change leaders without disk access. A crash loses only epochs of the active
segment, which recovery reads from its batches.

An epoch without batches may be lost: its leader wrote no records. A follower that requests it, or a later unknown
epoch, receives an older epoch (KIP-279), which ends at the same offset.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from kreplica.errors import StorageError
from kreplica.model import NO_EPOCH
from kreplica.runtime.disk import Disk
from kreplica.storage.formats.checkpoints import parse_checkpoint, render_checkpoint

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """A leader epoch and its first offset."""

    epoch: int
    start_offset: int


def read_epochs(path: str, disk: Disk) -> tuple[EpochEntry, ...]:
    """Return the entries of a file, oldest first; none if it is missing.

    :raise StorageError: the file is damaged.
    """
    try:
        text = disk.read_file(path)
    except FileNotFoundError:
        return ()
    entries: list[EpochEntry] = []
    for fields in parse_checkpoint(path, text, fields=2):
        entry = EpochEntry(int(fields[0]), int(fields[1]))
        if entries and not (entry > entries[-1] and entry[1] >= entries[-1][1]):
            raise StorageError(f"{path}: epoch {entry.epoch} does not follow epoch {entries[-1].epoch}")
        entries.append(entry)
    return tuple(entries)


class LeaderEpochs:
    """Leader epochs of one log, oldest first; epochs and start offsets increase.

    :ivar entries: all entries, oldest first.
    :ivar latest: the highest epoch, or ``NO_EPOCH``; read by every append and fetch.
    """

    __slots__ = ("_directory", "_disk", "_is_written", "entries", "latest")

    def __init__(self, directory: str, disk: Disk, entries: Iterable[EpochEntry] = ()) -> None:
        self._directory = directory
        self._disk = disk
        self.entries: tuple[EpochEntry, ...] = ()
        self._set_entries(entries)
        self._is_written = True

    @classmethod
    def load(cls, directory: str, disk: Disk) -> LeaderEpochs:
        """Read the file of a log's directory.

        :raise StorageError: the file is damaged.
        """
        return cls(directory, disk, read_epochs(f"{directory}/{FILE_NAME}", disk))

    @property
    def path(self) -> str:
        return f"{self._directory}/{FILE_NAME}"

    def _set_entries(self, entries: Iterable[EpochEntry]) -> None:
        before, self.entries = self.entries, tuple(entries)
        if self.entries != before:
            self._is_written = False
        self.latest = self.entries[-1].epoch if self.entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch; ignored unless it is newer than the latest one.

        Entries that start at or after ``start_offset`` have no records and are removed.
        """
        if epoch <= self.latest:
            return
        earlier = [entry for entry in self.entries if entry.start_offset < start_offset]
        self._set_entries([*earlier, EpochEntry(epoch, start_offset)])

    def epoch_of(self, offset: int) -> int:
        """Return the epoch in which ``offset`` was written, or ``NO_EPOCH`` if unknown."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[index - 1].epoch if index else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the end offset of an epoch, up to which a follower's log may match this one (KIP-101, KIP-279).

        :param epoch: epoch of the follower's last record.

        :return: the largest known epoch that is not above ``epoch``, and its end offset. The latest epoch ends at
            ``log_end_offset``. (-1, -1) if ``epoch`` is above all known ones, or if none are known. For an epoch
            below all known ones: ``epoch`` and the start of the first known one.
        """
        if epoch == NO_EPOCH or epoch > self.latest:
            return NO_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        index = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        largest_epoch = self.entries[index - 1].epoch if index else epoch
        return largest_epoch, self.entries[index].start_offset

    def truncate_to(self, end_offset: int) -> None:
        """Remove epochs that start at or after ``end_offset``."""
        self._set_entries(entry for entry in self.entries if entry.start_offset < end_offset)

    def truncate_start(self, start_offset: int) -> None:
        """Remove epochs that end at or before ``start_offset``; the one that contains it then starts there."""
        index = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if index == 0:
            return
        self._set_entries([EpochEntry(self.entries[index - 1].epoch, start_offset), *self.entries[index:]])

    def clear(self) -> None:
        self._set_entries(())

    def write(self, *, force: bool = False) -> None:
        """Write the file if the entries have changed since the last write, without a sync.

        :param force: write it even if it did not change.
        :raise OSError: the write failed.
        """
        if force or not self._is_written:
            data = render_checkpoint(f"{entry.epoch} {entry.start_offset}" for entry in self.entries)
            self._disk.write_file(self.path, data, sync=False)
            self._is_written = True
