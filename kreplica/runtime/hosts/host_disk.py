"""Disk of one of several programs in a process; killing the program invalidates its open files."""

from __future__ import annotations

import errno
import os
from threading import Lock
from weakref import WeakSet

from kreplica.runtime.disk import DirectoryLock, File
from kreplica.runtime.os_disk import OsDirectoryLock, OsDisk, OsFile


class HostFile(OsFile):
    """A file that becomes unusable when its program is killed, even if it is still referenced."""

    __slots__ = ("__weakref__",)

    def invalidate(self) -> int:
        """Mark the file closed and return its descriptor, which the caller must close; -1 if it was already closed."""
        descriptor, self._fd = self._fd, -1
        return descriptor


class HostDisk(OsDisk):
    """Disk of one program.

    A kill invalidates all files at once, so that later calls fail. The descriptors are closed only in ``release``,
    since a thread in the middle of a system call may still use one.
    """

    def __init__(self) -> None:
        self._killed = False
        self._files: WeakSet[HostFile] = WeakSet()
        self._locks: WeakSet[OsDirectoryLock] = WeakSet()
        self._to_close: list[int] = []
        self._lock = Lock()
        """Protects the state against threads that open files."""

    def kill(self) -> None:
        """Make all later calls on open files, and all calls that change files, fail; nothing is synced.

        Calls that only read, such as ``exists`` and ``read_file``, still succeed: they cannot affect the next program.
        """
        with self._lock:
            self._killed = True
            descriptors = [file.invalidate() for file in list(self._files)]
        self._to_close += [descriptor for descriptor in descriptors if descriptor >= 0]

    def release(self) -> None:
        """Close the descriptors and release the locks; call it after ``kill``, when all threads are idle."""
        descriptors, self._to_close = self._to_close, []
        for descriptor in descriptors:
            os.close(descriptor)
        for lock in list(self._locks):
            lock.release()

    def _check(self, path: str) -> None:
        if self._killed:
            raise OSError(errno.EOWNERDEAD, "the program that uses this disk was killed", path)

    # --- files ---

    def open(self, path: str, *, create: bool = False) -> File:
        with self._lock:
            self._check(path)
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            file = HostFile(path, os.open(path, flags, 0o644))
            self._files.add(file)
        return file

    def lock_directory(self, path: str) -> DirectoryLock:
        self._check(path)
        lock = super().lock_directory(path)
        assert isinstance(lock, OsDirectoryLock)
        self._locks.add(lock)
        return lock

    # --- directories ---

    def make_directories(self, path: str) -> None:
        self._check(path)
        super().make_directories(path)

    def remove(self, path: str) -> None:
        self._check(path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self._check(path)
        super().remove_tree(path)

    def rename(self, old: str, new: str) -> None:
        self._check(old)
        super().rename(old, new)

    def sync_directory(self, path: str) -> None:
        self._check(path)
        super().sync_directory(path)

    def write_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self._check(path)
        super().write_file(path, data, sync=sync)
