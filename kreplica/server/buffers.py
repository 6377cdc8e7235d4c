"""Memory for frames that come in several reads: buffers that are used again, and a bound on what they hold together."""

from __future__ import annotations

from mmap import mmap
from typing import Protocol

from kreplica.server.connection import Connection

SIZE_MIN_LOG2 = 14
SIZE_KEPT_MAX_LOG2 = 22
KEPT_BYTES_MAX = 32 * 1024 * 1024


class BufferPool:
    """Buffers of powers of two, used again because fresh memory is slow (the kernel clears it page by page).

    They are anonymous mappings: a page takes memory when it is first written, so what a client announces costs
    nothing until it is received.

    :ivar kept_bytes: of the buffers that wait to be used again; at most ``KEPT_BYTES_MAX``.
    """

    def __init__(self) -> None:
        self.kept_bytes = 0
        self._kept: list[list[mmap]] = [[] for _ in range(SIZE_KEPT_MAX_LOG2 + 1)]

    def take(self, size: int) -> mmap:
        """A buffer of at least that size, with anything in it.

        :raise OSError: where the operating system gives no more memory.
        """
        log2 = max((size - 1).bit_length(), SIZE_MIN_LOG2)
        if log2 <= SIZE_KEPT_MAX_LOG2 and self._kept[log2]:
            self.kept_bytes -= 1 << log2
            return self._kept[log2].pop()
        return mmap(-1, 1 << log2)

    def give_back(self, buffer: mmap) -> None:
        """The caller does not look at it any more; large ones go back to the operating system."""
        log2 = (len(buffer) - 1).bit_length()
        if log2 <= SIZE_KEPT_MAX_LOG2 and self.kept_bytes + len(buffer) <= KEPT_BYTES_MAX:
            self.kept_bytes += len(buffer)
            self._kept[log2].append(buffer)


class Holder(Protocol):
    """A transport that is inside a frame."""

    connection: Connection

    def wait_for_memory(self) -> None:
        """Read no more until ``go_on``."""

    def go_on(self) -> None:
        """There is memory again."""


class PartialFrames:
    """How many bytes of incomplete frames all connections hold, and who may go on when that is too much.

    Beyond the bound one connection goes on until its frame is complete, and the others wait: so the bound is exceeded
    by one frame at most, and there is always progress as long as that one client sends (who does not is given up, see
    ``Bounds.partial_stall_s``).

    :ivar held_bytes: now.
    :ivar going: who goes on while others wait, None where nobody waits.
    """

    def __init__(self, bytes_max: int) -> None:
        self.held_bytes = 0
        self.going: Holder | None = None
        self._bytes_max = bytes_max
        self._held: dict[Holder, int] = {}
        self._waiting: dict[Holder, None] = {}

    def update(self, holder: Holder, size: int) -> None:
        """So many bytes of an incomplete frame are held now; 0 when the frame is complete or the connection is lost."""
        if size:
            self.held_bytes += size - self._held.get(holder, 0)
            self._held[holder] = size
            if self.held_bytes > self._bytes_max and holder is not self.going:
                if self.going is None:
                    self.going = holder
                else:
                    self._waiting[holder] = None
                    holder.wait_for_memory()
        elif holder in self._held:
            self.held_bytes -= self._held.pop(holder)
            self._waiting.pop(holder, None)
            if holder is self.going:
                self.going = None
            self._wake()

    @property
    def is_scarce(self) -> bool:
        """Whether connections wait."""
        return bool(self._waiting)

    def _wake(self) -> None:
        waiting = list(self._waiting)
        if not waiting:
            if self.held_bytes <= self._bytes_max:
                self.going = None
        elif self.held_bytes <= self._bytes_max:
            self._waiting.clear()
            self.going = None
            for holder in waiting:
                holder.go_on()
        elif self.going is None:
            self.going = waiting[0]
            del self._waiting[waiting[0]]
            waiting[0].go_on()
