"""Disk interface of the storage layer, and its implementation with the operating system.

The simulated disk (``kreplica.testing.simulator.disk``) passes the same contract tests and can lose unsynced bytes.
Only ``sync`` and ``sync_directory`` make bytes survive a power loss; everything written survives a killed process.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kreplica.errors import StorageError

Buffer = bytes | bytearray | memoryview
IOV_MAX = os.sysconf("SC_IOV_MAX")
"""Maximum number of buffers in one vectored write (more fail with ``EINVAL``)."""
_READ_BYTES = 1 << 20
"""Size of the second and later reads of a file; the first one normally returns all of it."""
FALLOC_FL_KEEP_SIZE = 1  # linux/falloc.h
_fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)  # Linux only
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)


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

    :param size: length of a file in bytes; has no meaning for a directory.
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

        :raise StorageError: the directory is locked already.
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
            rest = memoryview(b"".join(run))
            while written < size:
                count = pwritev([rest[written:]], position + total + written)
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


class OsFile:
    """A ``File`` of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._fd = descriptor

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < size and (data := os.pread(self._fd, size - got, position + got)):
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def write_at(self, position: int, pieces: Sequence[Buffer]) -> int:
        total = sum(map(len, pieces))
        if len(pieces) == 1:
            written = os.pwrite(self._fd, pieces[0], position)
        elif len(pieces) <= IOV_MAX:
            written = os.pwritev(self._fd, pieces, position)
        else:
            return write_pieces(self._pwritev, position, pieces, self.path)
        if written == total:
            return total
        rest = memoryview(b"".join(pieces))[written:]
        return written + write_pieces(self._pwritev, position + written, [rest], self.path)

    def _pwritev(self, pieces: Sequence[Buffer], position: int) -> int:
        return os.pwritev(self._fd, pieces, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        # os.posix_fallocate would lengthen the file; the system call itself has a flag that keeps its length.
        if _fallocate is not None and _fallocate(self._fd, FALLOC_FL_KEEP_SIZE, 0, size) != 0:
            number = ctypes.get_errno()
            if number not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise OSError(number, os.strerror(number), self.path)

    def is_cached(self, position: int, size: int) -> bool:
        # Checking the first and last byte is enough: read-ahead loads whole extents, and an error costs one slow read.
        for at in {position, position + max(size, 1) - 1}:
            try:
                os.preadv(self._fd, [bytearray(1)], at, os.RWF_NOWAIT)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno == errno.EOPNOTSUPP:
                    return True
                raise
        return True

    def read_cached(self, position: int, size: int) -> bytearray | None:
        data = bytearray(size)
        try:
            count = os.preadv(self._fd, [data], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            count = os.preadv(self._fd, [data], position)  # the file system does not support RWF_NOWAIT
        return data if count == size else None

    def sync(self) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        os.fdatasync(self._fd)

    def descriptor(self) -> int | None:
        return self._fd

    def close(self) -> None:
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    # The last reference may be a response that is still being sent (``FileRange``), so no owner knows when to close.
    __del__ = close


class OsDirectoryLock:
    """An ``flock`` on a file named ``.lock``; Kafka locks the same file."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor

    def release(self) -> None:
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)


class OsDisk:
    """A ``Disk`` of the operating system."""

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(path, os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        # shutil.rmtree takes twice as long, because it protects against renames by other processes.
        try:
            with os.scandir(path) as found:
                entries = list(found)
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                self.remove_tree(entry.path)
            else:
                os.remove(entry.path)
        os.rmdir(path)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read_file(self, path: str) -> bytes:
        # Without a file object, which costs several times as much as the system calls for a small file.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(descriptor, os.fstat(descriptor).st_size + 1)
            pieces = [data]
            while data and (data := os.read(descriptor, _READ_BYTES)):
                pieces.append(data)
        finally:
            os.close(descriptor)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def write_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path) or ".")

    def usage(self, path: str) -> tuple[int, int]:
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def status(self, path: str) -> FileStatus:
        found = os.stat(path)
        return FileStatus(found.st_size, found.st_mtime_ns)

    def lock_directory(self, path: str) -> DirectoryLock:
        name = os.path.join(path, ".lock")
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise StorageError(
                f"{path} is in use: another process holds {name}; stop it, or choose another directory"
            ) from None
        return OsDirectoryLock(descriptor)


class ReadOnlyDisk(OsDisk):
    """A disk that opens files read-only, so it works without write permission."""

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            raise OSError(errno.EROFS, "the disk is read-only", path)
        return OsFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
