"""Buffers for frames that come in several reads."""

from __future__ import annotations

from mmap import mmap

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
