"""Finding stored batches that are not what was written, or that the device does not give back."""

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
"""What Linux answers to a read where the medium, its checksums or its file system fail."""

WHOLE_SEGMENT = -1
"""The position of damage that may be anywhere in its segment."""


class Damage(StorageError):
    """Stored bytes are not what was written, or cannot be read.

    :ivar path: the segment's file; ``base_offset`` its base offset.
    :ivar position: of the first batch that is not whole, or ``WHOLE_SEGMENT``.
    """

    def __init__(self, path: str, base_offset: int, position: int, why: str) -> None:
        where = path if position == WHOLE_SEGMENT else f"{path}, position {position}"
        super().__init__(f"{where}: {why}")
        self.path = path
        self.base_offset = base_offset
        self.position = position


def is_unreadable(error: Exception) -> bool:
    """Whether it says that the device does not give back what is stored, rather than anything about this process."""
    return isinstance(error, OSError) and error.errno in _UNREADABLE


@contextmanager
def reading(path: str, base_offset: int) -> Iterator[None]:
    """What is done within reads that segment: that the device does not give it back is ``Damage``."""
    try:
        yield
    except OSError as error:
        if is_unreadable(error):
            raise Damage(path, base_offset, WHOLE_SEGMENT, str(error)) from error
        raise


def is_whole(data: memoryview, header: BatchHeader) -> bool:
    """Whether a stored batch is the one that was written, by its checksum."""
    return verify_crc(data, header)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Batches of one segment that are to be checked; ``check`` runs on any thread.

    A checksum covers a batch from its attributes on.  Its offset and its leader epoch are stamped later: they show by
    their order, and by what is known of the epochs.

    :param next_offset: no batch starts below it.
    :param end_position: where the whole batches end, and ``end_offset`` the offset after them.
    :param epochs: of the log, oldest first.
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
        """Check batches until so many bytes are checked, or all.

        :return: the position and the lowest offset of what follows.
        :raise Damage: the first batch that is not what was written.
        :raise FileNotFoundError: the segment was removed or compacted.
        """
        with reading(self.path, self.base_offset):
            file = self.disk.open(self.path)
            try:
                return self._check(file, size_max)
            finally:
                file.close()

    def _check(self, file: File, size_max: int) -> tuple[int, int]:
        position, next_offset = self.position, self.next_offset
        stop = min(position + size_max, self.end_position)
        read_size = min(max(size_max, HEADER_SIZE), BATCHES_READ_SIZE)
        for at, header, data in scan_batches(file, position, self.end_position, read_size):
            if not is_whole(data, header):
                raise self._damage(at, f"wrong CRC in the batch of offset {header.base_offset}")
            self._check_place(at, header, next_offset)
            position, next_offset = at + header.size, header.next_offset
            if position >= stop:
                return position, next_offset
        if position < self.end_position:
            raise self._damage(position, "no batch stands there")
        return position, next_offset

    def _check_place(self, at: int, header: BatchHeader, next_offset: int) -> None:
        if header.base_offset < next_offset or header.last_offset_delta < 0 or header.next_offset > self.end_offset:
            raise self._damage(
                at, f"offsets {header.base_offset} to {header.last_offset} between {next_offset} and {self.end_offset}"
            )
        index = bisect_right(self.epochs, header.base_offset, key=lambda entry: entry.start_offset)
        epoch = self.epochs[index - 1].epoch if index else NO_EPOCH
        if NO_EPOCH not in (epoch, header.partition_leader_epoch) and header.partition_leader_epoch != epoch:
            raise self._damage(at, f"leader epoch {header.partition_leader_epoch}, where {epoch} wrote")

    def _damage(self, position: int, why: str) -> Damage:
        return Damage(self.path, self.base_offset, position, why)
