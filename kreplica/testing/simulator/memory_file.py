"""An open file on an in-memory disk."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Protocol

from kreplica.runtime.disk import IOV_MAX, Buffer, write_pieces
from kreplica.testing.simulator.content import Content
from kreplica.testing.simulator.disk_faults import Operation
from kreplica.testing.simulator.namespace import os_error


class FileStore(Protocol):
    """Operations of a simulated disk that an open file uses; each raises OSError for injected faults."""

    def check(self, operation: Operation, path: str) -> None: ...

    def write(self, content: Content, path: str, position: int, piece: Buffer) -> None: ...

    def resize(self, content: Content, path: str, size: int) -> None: ...

    def reserve(self, content: Content, path: str, size: int) -> None: ...

    def note_closed(self, number: int, content: Content) -> None: ...


class MemoryFile:
    __slots__ = ("__weakref__", "_content", "_disk", "_number", "_open", "path")

    def __init__(self, disk: FileStore, path: str, content: Content, number: int) -> None:
        self.path = path
        self._number = number
        self._disk = disk
        self._content = content
        self._open = True
        content.open_count += 1

    @property
    def is_open(self) -> bool:
        return self._open

    def size(self) -> int:
        return len(self._open_content().data)

    def read_at(self, position: int, size: int) -> bytes:
        content = self._open_content(position)
        self._disk.check("read", self.path)
        content.cold = False
        return bytes(content.data[position : position + size])

    def write_at(self, position: int, pieces: Sequence[Buffer]) -> int:
        self._open_content(position)
        return write_pieces(self._pwritev, position, pieces, self.path)

    def _pwritev(self, pieces: Sequence[Buffer], position: int) -> int:
        """Write like the system call, which rejects more than ``IOV_MAX`` pieces."""
        content = self._open_content(position)
        self._disk.check("write", self.path)
        if len(pieces) > IOV_MAX:
            raise os_error(errno.EINVAL, self.path)
        total = 0
        for piece in pieces:
            if piece:
                self._disk.write(content, self.path, position + total, piece)
                total += len(piece)
        return total

    def truncate(self, size: int) -> None:
        content = self._open_content(size)
        self._disk.check("write", self.path)
        self._disk.resize(content, self.path, size)

    def allocate(self, size: int) -> None:
        self._disk.reserve(self._open_content(size), self.path, size)

    def is_cached(self, position: int, size: int) -> bool:
        return not self._open_content(position).cold

    def read_cached(self, position: int, size: int) -> bytes | None:
        if not self.is_cached(position, size):
            return None
        data = self.read_at(position, size)
        return data if len(data) == size else None

    def sync(self) -> None:
        content = self._open_content()
        try:
            self._disk.check("sync", self.path)
        except OSError:
            content.note_failed_sync()
            raise
        content.sync()

    def descriptor(self) -> int | None:
        return None

    def close(self) -> None:
        if self._open:
            self._open = False
            self._content.open_count -= 1
            self._disk.note_closed(self._number, self._content)

    __del__ = close  # like a real file: its last reference may be a response that is still being sent

    def _open_content(self, position: int = 0) -> Content:
        if not self._open:
            raise os_error(errno.EBADF, self.path)
        if position < 0:
            raise os_error(errno.EINVAL, self.path)
        return self._content
