"""Pool of buffers for frames that arrive in several reads."""

from __future__ import annotations

from mmap import mmap

SIZE_MIN_LOG2 = 14
SIZE_KEPT_MAX_LOG2 = 22
KEPT_BYTES_MAX = 32 * 1024 * 1024


class BufferPool:
    """Buffers whose sizes are powers of two, reused because the kernel clears each page of new memory.

    They are anonymous mappings, which take memory when a page is first written: a large announced length costs nothing
    until the bytes arrive.

    :ivar kept_bytes: size of the unused buffers; at most ``KEPT_BYTES_MAX``.
    """

    def __init__(self) -> None:
        self.kept_bytes = 0
        self._kept: list[list[mmap]] = [[] for _ in range(SIZE_KEPT_MAX_LOG2 + 1)]

    def take(self, size: int) -> mmap:
        """Return a buffer of at least this size; its content is undefined.

        :raise OSError: the operating system refuses the memory.
        """
        log2 = max((size - 1).bit_length(), SIZE_MIN_LOG2)
        if log2 <= SIZE_KEPT_MAX_LOG2 and self._kept[log2]:
            self.kept_bytes -= 1 << log2
            return self._kept[log2].pop()
        return mmap(-1, 1 << log2)

    def give_back(self, buffer: mmap) -> None:
        """Return a buffer to the pool, or to the operating system if it is large or the pool is full."""
        log2 = (len(buffer) - 1).bit_length()
        if log2 <= SIZE_KEPT_MAX_LOG2 and self.kept_bytes + len(buffer) <= KEPT_BYTES_MAX:
            self.kept_bytes += len(buffer)
            self._kept[log2].append(buffer)
