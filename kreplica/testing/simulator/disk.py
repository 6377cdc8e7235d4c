"""Disk in memory that behaves like a real one and can fail like one.

It passes the contract tests of ``kreplica.runtime.os_disk.OsDisk``.  In addition, ``power_loss`` keeps the synced data
and a random part of the unsynced data, ``kill`` ends the process that uses it, ``fail`` makes chosen operations fail,
``flip_bit`` damages stored data, and ``capacity_bytes`` limits its size.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from weakref import ref

from kreplica.errors import StorageError
from kreplica.runtime.disk import Buffer, DirectoryLock, File, FileStatus
from kreplica.testing.simulator.content import Content
from kreplica.testing.simulator.disk_faults import Faults, Operation
from kreplica.testing.simulator.memory_file import MemoryFile
from kreplica.testing.simulator.namespace import Directory, Namespace, Node, os_error, split

CAPACITY_BYTES = 1 << 40


class MemoryDirectoryLock:
    """A lock that ``MemoryDisk.kill`` releases, as the kernel does when a process ends."""

    def __init__(self, locks: dict[Content, MemoryDirectoryLock], name: Content) -> None:
        self._locks = locks
        self._name = name
        locks[name] = self

    def release(self) -> None:
        if self._locks.get(self._name) is self:
            del self._locks[self._name]


class MemoryDisk:
    """A ``Disk`` in memory, used by one simulated host; it outlives the host's processes.

    :param clock_ms: source of modification times.
    :param directories: initial directories, which are durable.
    :param capacity_bytes: writes beyond it raise ``ENOSPC``; may be changed at any time.
    """

    def __init__(
        self,
        clock_ms: Callable[[], int] = lambda: 0,
        directories: Iterable[str] = (),
        capacity_bytes: int = CAPACITY_BYTES,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self._clock_ms = clock_ms
        self._names = Namespace(clock_ms)
        self._open: dict[int, ref[MemoryFile]] = {}
        self._opened_count = 0
        self._locks: dict[Content, MemoryDirectoryLock] = {}
        self._faults = Faults()
        self._used_bytes = 0
        for path in directories:
            self.make_directories(path)
        self.write_back()

    # --- Disk ---

    def open(self, path: str, *, create: bool = False) -> File:
        self.check("open", path)
        parent, name = self._names.parent(path)
        node = parent.names.get(name) if name else self._names.root
        if isinstance(node, Directory):
            raise os_error(errno.EISDIR, path)
        if node is None:
            if not create:
                raise os_error(errno.ENOENT, path)
            node = Content(self._clock_ms())
            self._names.change((parent, name, node))
        self._opened_count = number = self._opened_count + 1
        file = MemoryFile(self, path, node, number)
        self._open[number] = ref(file)
        return file

    def exists(self, path: str) -> bool:
        return self._names.find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._names.find(path), Directory)

    def list_directory(self, path: str) -> list[str]:
        return sorted(self._names.directory(path).names)

    def make_directories(self, path: str) -> None:
        directory = self._names.root
        for name in split(path):
            node = directory.names.get(name)
            if node is None:
                node = Directory(self._clock_ms())
                self._names.change((directory, name, node))
            elif isinstance(node, Content):
                raise os_error(errno.EEXIST, path)
            directory = node

    def remove(self, path: str) -> None:
        self.check("remove", path)
        parent, name = self._names.parent(path)
        node = parent.names.get(name) if name else self._names.root
        if isinstance(node, Directory):
            raise os_error(errno.EISDIR, path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        self._names.change((parent, name, None))
        self._note_unlinked(node)

    def remove_tree(self, path: str) -> None:
        self.check("remove", path)
        node = self._names.find(path)
        if node is None:
            return
        if isinstance(node, Content):
            raise os_error(errno.ENOTDIR, path)
        self._empty(node)
        parent, name = self._names.parent(path)
        if name:
            self._names.change((parent, name, None))

    def _empty(self, directory: Directory) -> None:
        for name, node in sorted(directory.names.items()):
            if isinstance(node, Directory):
                self._empty(node)
            self._names.change((directory, name, None))
            if isinstance(node, Content):
                self._note_unlinked(node)

    def rename(self, old: str, new: str) -> None:
        self.check("rename", old)
        from_parent, from_name = self._names.parent(old)
        to_parent, to_name = self._names.parent(new)
        node = from_parent.names.get(from_name)
        if node is None:
            raise os_error(errno.ENOENT, old)
        replaced = to_parent.names.get(to_name)
        if replaced is node:
            return
        self._check_rename(old, new, node, replaced)
        self._names.change((from_parent, from_name, None), (to_parent, to_name, node))
        if isinstance(replaced, Content):
            self._note_unlinked(replaced)

    def _check_rename(self, old: str, new: str, node: Node, replaced: Node | None) -> None:
        if isinstance(node, Directory):
            if posixpath.normpath(new).startswith(posixpath.normpath(old) + "/"):
                raise os_error(errno.EINVAL, new)
            if isinstance(replaced, Content):
                raise os_error(errno.ENOTDIR, new)
            if replaced is not None and replaced.names:
                raise os_error(errno.ENOTEMPTY, new)
        elif isinstance(replaced, Directory):
            raise os_error(errno.EISDIR, new)

    def sync_directory(self, path: str) -> None:
        directory = self._names.directory(path)
        self.check("sync_directory", path)
        self._names.sync(directory)

    def read_file(self, path: str) -> bytes:
        self.check("read", path)
        return bytes(self._names.content(path).data)

    def write_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write_at(0, [data])
            if sync:
                file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        if sync:
            self.sync_directory(posixpath.dirname(path) or ".")

    def usage(self, path: str) -> tuple[int, int]:
        if not self.exists(path):
            raise os_error(errno.ENOENT, path)
        return self.capacity_bytes, max(self.capacity_bytes - self._used_bytes, 0)

    def status(self, path: str) -> FileStatus:
        node = self._names.find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        size = len(node.data) if isinstance(node, Content) else 0
        return FileStatus(size, node.modified_ms * 1_000_000)

    def lock_directory(self, path: str) -> DirectoryLock:
        self._names.directory(path)
        name = posixpath.join(path, ".lock")
        self.open(name, create=True).close()
        content = self._names.content(name)
        if content in self._locks:
            raise StorageError(f"{path} is in use: {name} is locked; stop the other process or use another directory")
        return MemoryDirectoryLock(self._locks, content)

    # --- faults ---

    def kill(self) -> None:
        """End the process: its files are closed, its locks are released, and everything it wrote remains."""
        for file in self._open_files():
            file.close()
        self._locks.clear()

    def power_loss(self, random: Random) -> None:
        """End the process, and keep, drop or tear each unsynced change at random."""
        self.kill()
        self._names.lose_power(random)
        self._used_bytes = 0
        for content in self._names.root.contents():
            content.lose_power(random)
            content.linked = True
            content.cold = True
            self._used_bytes += content.footprint()

    def drop_caches(self, random: Random) -> None:
        """Drop clean pages, including those of a failed sync, so that they are read from the device again."""
        for content in self._names.root.contents():
            old_footprint = content.footprint()
            content.drop_clean_pages(random)
            content.cold = True
            self._used_bytes += content.footprint() - old_footprint

    def write_back(self) -> None:
        """Make everything durable, as the kernel does from time to time."""
        self._names.sync_all()
        for content in self._names.root.contents():
            content.sync()

    def fail(
        self, operation: Operation, pattern: str, number: int = errno.EIO, times: int | None = None
    ) -> Callable[[], None]:
        """Make an operation fail on matching paths.

        :param pattern: shell pattern for the path as the caller passes it, such as ``/data/*/*.log``.
        :param number: errno of the failures.
        :param times: number of failures; None for no limit.
        :return: function that ends this fault; it may be called after the fault has ended.
        """
        return partial(self._faults.remove, self._faults.add(operation, pattern, number, times))

    def clear_faults(self) -> None:
        self._faults.clear()

    @property
    def is_failing(self) -> bool:
        return bool(self._faults)

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Invert one stored bit of the byte at ``position``.

        :raise IndexError: the position is beyond the end of the file.
        """
        self._names.content(path).flip(position, bit)

    def stored(self, path: str) -> bytearray:
        """Return a file's bytes as programs wrote them, without faults and inverted bits; for checks only.

        :raise OSError: ``ENOENT``.
        """
        return self._names.content(path).written

    def synced_size(self, path: str) -> int:
        """Return the size of the durable beginning of the file.

        :raise OSError: ``ENOENT``.
        """
        return self._names.content(path).synced_size

    def damaged_files(self) -> list[str]:
        return [path for path, content in self._names.files() if content.is_damaged]

    def evict(self, path: str) -> None:
        """Drop a file from the page cache: ``File.is_cached`` returns false until it is read again."""
        self._names.content(path).cold = True

    @property
    def open_paths(self) -> list[str]:
        return [file.path for file in self._open_files()]

    def _open_files(self) -> list[MemoryFile]:
        return [file for file in (reference() for reference in self._open.values()) if file is not None]

    # --- for MemoryFile ---

    def check(self, operation: Operation, path: str) -> None:
        """Raise the error of an injected fault.

        :raise OSError: a fault of ``fail`` matches.
        """
        self._faults.check(operation, path)

    def write(self, content: Content, path: str, position: int, piece: Buffer) -> None:
        """Write as much as fits.

        :raise OSError: ``ENOSPC``: the piece did not fit completely.
        """
        growth = position + len(piece) - content.footprint()
        free = self.capacity_bytes - self._used_bytes
        is_full = growth > 0 and growth > free
        if is_full:
            piece = piece[: max(len(piece) - growth + max(free, 0), 0)]
        old_footprint = content.footprint()
        if piece:
            content.write(position, piece)
            content.modified_ms = self._clock_ms()
            self._used_bytes += content.footprint() - old_footprint
        if is_full:
            raise os_error(errno.ENOSPC, path)

    def resize(self, content: Content, path: str, size: int) -> None:
        """Change the length; truncating the file also frees its reserved space."""
        old_footprint = content.footprint()
        if size < len(content.data):
            content.reserved = 0
        elif size - old_footprint > self.capacity_bytes - self._used_bytes:
            raise os_error(errno.ENOSPC, path)
        content.truncate(size)
        content.modified_ms = self._clock_ms()
        self._used_bytes += content.footprint() - old_footprint

    def reserve(self, content: Content, path: str, size: int) -> None:
        """Reserve space up to ``size`` without changing the length."""
        growth = size - content.footprint()
        if growth > 0:
            if growth > self.capacity_bytes - self._used_bytes:
                raise os_error(errno.ENOSPC, path)
            content.reserved = size
            self._used_bytes += growth

    def note_closed(self, number: int, content: Content) -> None:
        """Remove a closed file, and free its bytes if it no longer has a name."""
        del self._open[number]
        if not content.linked and not content.open_count:
            self._used_bytes -= content.footprint()

    def _note_unlinked(self, content: Content) -> None:
        content.linked = False
        if not content.open_count:
            self._used_bytes -= content.footprint()
