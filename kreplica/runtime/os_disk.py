"""Implementation of ``Disk`` with the operating system."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Sequence

from kreplica.errors import StorageError
from kreplica.runtime.disk import IOV_MAX, Buffer, DirectoryLock, File, FileStatus, write_pieces

_READ_BYTES = 1 << 20
"""Size of the second and later reads of a file; the first one normally returns all of it."""
_FALLOC_FL_KEEP_SIZE = 1  # linux/falloc.h
_fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)  # Linux only
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)


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
        size_read = len(data)
        while size_read < size and (data := os.pread(self._fd, size - size_read, position + size_read)):
            pieces.append(data)
            size_read += len(data)
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
        remaining = memoryview(b"".join(pieces))[written:]
        return written + write_pieces(self._pwritev, position + written, [remaining], self.path)

    def _pwritev(self, pieces: Sequence[Buffer], position: int) -> int:
        return os.pwritev(self._fd, pieces, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        # os.posix_fallocate would lengthen the file; the system call itself has a flag that keeps its length.
        if _fallocate is not None and _fallocate(self._fd, _FALLOC_FL_KEEP_SIZE, 0, size) != 0:
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
