"""Disk interface of the storage layer.

``os_disk`` implements it. The simulated disk (``kreplica.testing.simulator.disk``) passes the same contract tests and
can lose unsynced bytes.

Only ``sync`` and ``sync_directory`` make bytes survive a power loss; everything written survives a killed process.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview
IOV_MAX = os.sysconf("SC_IOV_MAX")
"""Maximum number of buffers in one vectored write (more fail with ``EINVAL``)."""


class File(Protocol):
    """An open file without a cursor: all reads and writes have explicit positions."""

    @property
    def path(self) -> str:
        """The path passed to ``open``; a rename does not change it."""

    def size(self) -> int:
        """Return the length in bytes."""

    def read_at(self, position: int, size: int) -> bytes:
        """Read at most ``size`` bytes; fewer at the end of the file, and none beyond it."""

    def write_at(self, position: int, pieces: Sequence[Buffer]) -> int:
        """Write all pieces in order.

        :param pieces: may be more than ``IOV_MAX``.
        :return: the number of bytes written.
        :raise OSError: the file may contain a part of the pieces.
        """

    def truncate(self, size: int) -> None:
        """Truncate to ``size`` bytes, or extend with zeros."""

    def allocate(self, size: int) -> None:
        """Reserve space up to ``size`` bytes without changing the length; does nothing if unsupported."""

    def is_cached(self, position: int, size: int) -> bool:
        """Return True if the range is probably in the page cache; an estimate, because not every page is checked."""

    def read_cached(self, position: int, size: int) -> bytes | bytearray | None:
        """Read the whole range from the page cache; None if it is not cached or extends beyond the end of the file.

        :raise OSError: the read failed.
        """

    def sync(self) -> None:
        """Make all writes durable. It blocks, so call it through ``Offload``.

        :raise OSError: all unsynced writes may be lost. Never retry; take the log directory offline.
        """

    def descriptor(self) -> int | None:
        """Return the file descriptor for ``sendfile``, or None in the simulator."""

    def close(self) -> None:
        """Close the file; idempotent. A file without references is closed automatically."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """Byte range of a file, such as records to send.

    It keeps the file open, so it stays readable after the log has closed or deleted the file. Its bytes never change,
    but a truncation may remove them (short read or short ``sendfile``).
    """

    file: File
    position: int
    size: int

    def read(self) -> bytes:
        """Read its bytes; fewer if the file was truncated."""
        return self.file.read_at(self.position, self.size)


class FileStatus(NamedTuple):
    """Size and modification time of a file or directory.

    :param size: length of a file in bytes; meaningless for a directory.
    :param modified_ns: time of the last write, or of the last change of a directory's entries, in nanoseconds since
        1970. The system's clock has a coarser resolution.
    """

    size: int
    modified_ns: int


class DirectoryLock(Protocol):
    """Exclusive lock of a directory, held by one process or simulated broker."""

    def release(self) -> None:
        """Release the lock; idempotent."""


class Disk(Protocol):
    """Files and directories by path. Errors are ``OSError`` with the errno of Linux."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing.

        :param create: create an empty file if it does not exist; the parent directory must exist.
        :raise FileNotFoundError: the file does not exist and ``create`` is False.
        """

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list_directory(self, path: str) -> list[str]:
        """Return the sorted names of a directory's entries."""

    def make_directories(self, path: str) -> None:
        """Create a directory and its parents; existing ones are accepted."""

    def remove(self, path: str) -> None:
        """Remove one file; it stays readable while it is open."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its contents; a missing one is accepted."""

    def rename(self, old: str, new: str) -> None:
        """Atomically rename a file or directory, replacing an existing file."""

    def sync_directory(self, path: str) -> None:
        """Make created, renamed and removed entries of a directory durable."""

    def read_file(self, path: str) -> bytes: ...

    def write_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Atomically replace a file: write a temporary file, sync it, rename it, sync the directory.

        :param sync: False omits both syncs: after a power loss the file may have the old content, or part of the new.
        """

    def usage(self, path: str) -> tuple[int, int]:
        """Return (total, free) bytes of the file system that contains the path."""

    def status(self, path: str) -> FileStatus:
        """Return size and modification time of a file or directory.

        :raise FileNotFoundError: it does not exist.
        """

    def lock_directory(self, path: str) -> DirectoryLock:
        """Lock a directory.

        :raise StorageError: the directory is already locked.
        """


def write_pieces(
    pwritev: Callable[[Sequence[Buffer], int], int], position: int, pieces: Sequence[Buffer], path: str
) -> int:
    """Write all pieces with repeated vectored writes.

    :param pwritev: writes up to ``IOV_MAX`` pieces at a position and returns the number of bytes written.
    :return: the number of bytes.
    :raise OSError: a write failed, or wrote nothing.
    """
    total = 0
    for first in range(0, len(pieces), IOV_MAX):
        run = pieces[first : first + IOV_MAX]
        size = sum(map(len, run))
        written = pwritev(run, position + total)
        if written < size:
            remaining = memoryview(b"".join(run))
            while written < size:
                count = pwritev([remaining[written:]], position + total + written)
                if count == 0:
                    raise OSError(errno.EIO, "the device wrote no bytes", path)
                written += count
        total += size
    return total


def is_full(error: Exception) -> bool:
    """Return True if the disk or quota is full, which is temporary, unlike other errors of a device."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_out_of_descriptors(error: Exception) -> bool:
    """Return True if the limit of open files is reached; ``open`` can fail with this error, ``sync`` cannot."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def is_temporary(error: Exception) -> bool:
    """Return True if the error is temporary: no disk space, file descriptors or memory.

    Do not use it for a failed sync: whatever the error, unsynced writes may be lost.
    """
    return (
        is_full(error) or is_out_of_descriptors(error) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    )


def make_directories_durably(disk: Disk, path: str) -> None:
    """Create a directory and its parents, and make the new entries durable."""
    missing = []
    while not disk.exists(path):
        missing.append(path)
        path = os.path.dirname(path) or "."
    for name in reversed(missing):
        disk.make_directories(name)
        disk.sync_directory(os.path.dirname(name) or ".")
