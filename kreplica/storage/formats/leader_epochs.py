"""Which leader epoch wrote which offsets (KIP-101), in Kafka's ``leader-epoch-checkpoint`` file.

A change of leader is a change in memory: the file is written when a segment is closed, when the log is truncated and at
an orderly stop, so ten thousand partitions change their leader without touching the disk.  What a crash loses by that
are only epochs of the segment that was appended to, and recovery reads every batch of it, each with its epoch.
An epoch that has no batch here is lost, and may be: its leader wrote nothing, so nobody has a record of it.  A follower
that asks for it, or for a later one that is unknown, is answered with an older epoch (KIP-279), which ends at the same
offset.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from kreplica.errors import StorageError
from kreplica.model import NO_EPOCH
from kreplica.runtime.disk import Disk
from kreplica.storage.formats.checkpoints import parse_checkpoint, render_checkpoint

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_OFFSET = -1


class EpochEntry(NamedTuple):
    """The first offset that a leader of ``epoch`` wrote, or would have written."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The epochs of one log, oldest first; both epochs and start offsets only grow along the list.

    :ivar latest: the highest epoch, or ``NO_EPOCH``; every append and every fetch asks for it.
    """

    def __init__(self, path: str, disk: Disk, entries: list[EpochEntry]) -> None:
        self._path = path
        self._disk = disk
        self._have(entries)
        self._written = tuple(entries)

    @classmethod
    def empty(cls, path: str, disk: Disk) -> LeaderEpochs:
        """No epochs yet; nothing is written."""
        return cls(path, disk, [])

    @classmethod
    def load(cls, path: str, disk: Disk) -> LeaderEpochs:
        """Read the file; one that is missing holds no epochs.

        :raise StorageError: the file is damaged.
        """
        try:
            text = disk.read_file(path)
        except FileNotFoundError:
            return cls.empty(path, disk)
        entries: list[EpochEntry] = []
        for fields in parse_checkpoint(path, text, fields=2):
            entry = EpochEntry(int(fields[0]), int(fields[1]))
            if entries and not (entry > entries[-1] and entry[1] >= entries[-1][1]):
                raise StorageError(f"{path}: epoch {entry.epoch} does not follow epoch {entries[-1].epoch}")
            entries.append(entry)
        return cls(path, disk, entries)

    @property
    def path(self) -> str:
        """The checkpoint file."""
        return self._path

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    def _have(self, entries: list[EpochEntry]) -> None:
        self._entries = entries
        self.latest = entries[-1].epoch if entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that ``epoch`` starts at ``start_offset``; older or equal epochs than the latest change nothing.

        An entry that starts at or beyond ``start_offset`` wrote nothing that is still there, and goes.
        """
        if epoch <= self.latest:
            return
        entries = self._entries
        while entries and entries[-1].start_offset >= start_offset:
            entries.pop()
        self._have([*entries, EpochEntry(epoch, start_offset)])

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote ``offset``, or ``NO_EPOCH`` where that is not known."""
        at = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[at - 1].epoch if at else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Where a follower whose last records are of ``epoch`` may still agree with this log (KIP-101, KIP-279).

        :return: the largest known epoch that is not above the asked one, and the offset that follows its last record:
            ``log_end_offset`` for the latest; (-1, -1) for an epoch above all known ones or where none is known;
            the asked epoch and the start of the first known one for an epoch below all.
        """
        if epoch == NO_EPOCH or epoch > self.latest:
            return NO_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        at = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        known = self._entries[at - 1].epoch if at else epoch
        return known, self._entries[at].start_offset

    def truncate_to(self, end_offset: int) -> None:
        """Forget epochs that start at or beyond ``end_offset``."""
        self._have([entry for entry in self._entries if entry.start_offset < end_offset])

    def truncate_start(self, start_offset: int) -> None:
        """Forget epochs that end at or before ``start_offset``; the one that holds it starts there from now on."""
        at = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if at == 0:
            return
        self._have([EpochEntry(self._entries[at - 1].epoch, start_offset), *self._entries[at:]])

    def clear(self) -> None:
        """Forget everything."""
        self._have([])

    def write(self, *, anew: bool = False) -> None:
        """Bring the file up to date, where it is not; not synced.

        :param anew: write it in any case.
        :raise OSError: the device fails, or is full.
        """
        entries = self.entries
        if anew or entries != self._written:
            data = render_checkpoint(f"{entry.epoch} {entry.start_offset}" for entry in entries)
            self._disk.write_file(self._path, data, sync=False)
            self._written = entries
