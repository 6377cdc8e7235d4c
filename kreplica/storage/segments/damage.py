"""Detection of stored batches that are corrupt or unreadable."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kreplica.errors import StorageError
from kreplica.model import NO_EPOCH
from kreplica.runtime.disk import Disk, File
from kreplica.storage.formats.batch_scanning import BATCHES_READ_SIZE, scan_batches
from kreplica.storage.formats.leader_epochs import EpochEntry
from kreplica.wire.batches import HEADER_SIZE, BatchHeader, verify_crc

_UNREADABLE = frozenset({errno.EIO, errno.ENODATA, errno.EILSEQ, errno.EBADMSG, errno.EUCLEAN})
"""Linux error numbers of reads that fail because of the medium, its checksums or the file system."""

WHOLE_SEGMENT = -1
"""Position of damage that may be anywhere in the segment."""


class Damage(StorageError):
    """Stored bytes are corrupt or unreadable.

    :ivar path: file of the segment.
    :ivar base_offset: base offset of the segment.
    :ivar position: position of the first damaged batch, or ``WHOLE_SEGMENT``.
    """

    def __init__(self, path: str, base_offset: int, position: int, reason: str) -> None:
        location = path if position == WHOLE_SEGMENT else f"{path}, position {position}"
        super().__init__(f"{location}: {reason}")
        self.path = path
        self.base_offset = base_offset
        self.position = position


def is_unreadable(error: Exception) -> bool:
    """True if the error means that the device cannot return stored data."""
    return isinstance(error, OSError) and error.errno in _UNREADABLE


@contextmanager
def damage_if_unreadable(path: str, base_offset: int) -> Iterator[None]:
    """Convert read errors of the device inside this context to ``Damage``."""
    try:
        yield
    except OSError as error:
        if is_unreadable(error):
            raise Damage(path, base_offset, WHOLE_SEGMENT, str(error)) from error
        raise


def matches_crc(data: memoryview, header: BatchHeader) -> bool:
    """True if the batch matches its checksum."""
    return verify_crc(data, header)


@dataclass(frozen=True, slots=True)
class BatchesToCheck:
    """Batches of one segment to check; ``check`` may run in any thread.

    The checksum of a batch does not cover its offset and leader epoch. Offsets are therefore checked for their order,
    and leader epochs against those of the log.

    :param next_offset: lower bound for the offsets of the batches.
    :param end_position: end of the last whole batch.
    :param end_offset: offset after the last batch.
    :param epochs: leader epochs of the log, oldest first.
    """

    disk: Disk
    path: str
    base_offset: int
    position: int
    next_offset: int
    end_position: int
    end_offset: int
    epochs: Sequence[EpochEntry]

    def check(self, size_max: int) -> tuple[int, int]:
        """Check batches until ``size_max`` bytes are checked.

        :return: position and lowest offset of the next batch.
        :raise Damage: a batch is damaged; reports the first one.
        :raise FileNotFoundError: the segment was removed or compacted.
        """
        with damage_if_unreadable(self.path, self.base_offset):
            file = self.disk.open(self.path)
            try:
                return self._check(file, size_max)
            finally:
                file.close()

    def _check(self, file: File, size_max: int) -> tuple[int, int]:
        position, next_offset = self.position, self.next_offset
        stop = min(position + size_max, self.end_position)
        read_size = min(max(size_max, HEADER_SIZE), BATCHES_READ_SIZE)
        for batch_position, header, data in scan_batches(file, position, self.end_position, read_size):
            if not matches_crc(data, header):
                raise self._damage(batch_position, f"wrong CRC in the batch of offset {header.base_offset}")
            self._check_header(batch_position, header, next_offset)
            position, next_offset = batch_position + header.size, header.next_offset
            if position >= stop:
                return position, next_offset
        if position < self.end_position:
            raise self._damage(position, "no valid batch at this position")
        return position, next_offset

    def _check_header(self, batch_position: int, header: BatchHeader, next_offset: int) -> None:
        if header.base_offset < next_offset or header.last_offset_delta < 0 or header.next_offset > self.end_offset:
            raise self._damage(
                batch_position,
                f"offsets {header.base_offset} to {header.last_offset}, expected {next_offset} to {self.end_offset}",
            )
        index = bisect_right(self.epochs, header.base_offset, key=lambda entry: entry.start_offset)
        epoch = self.epochs[index - 1].epoch if index else NO_EPOCH
        if NO_EPOCH not in (epoch, header.partition_leader_epoch) and header.partition_leader_epoch != epoch:
            raise self._damage(batch_position, f"leader epoch {header.partition_leader_epoch}, expected {epoch}")

    def _damage(self, position: int, reason: str) -> Damage:
        return Damage(self.path, self.base_offset, position, reason)
