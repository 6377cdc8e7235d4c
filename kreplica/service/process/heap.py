"""Returns the memory that large requests leave free in the C heap to the operating system."""

from __future__ import annotations

import ctypes
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from kreplica.runtime.process_figures import process_figures

log = Logger()

CHECK_INTERVAL_S = 5.0
TRIM_BYTES = 32 << 20
"""Growth of the unused resident memory since the last trim that makes another trim worth its time."""


class _HeapStatistics(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
    )]  # fmt: skip


_libc = ctypes.CDLL(None)
_malloc_trim: Any = getattr(_libc, "malloc_trim", None)
_mallinfo2: Any = getattr(_libc, "mallinfo2", None)
if _mallinfo2 is not None:
    _mallinfo2.restype = _HeapStatistics


class HeapTrimmer:
    """Calls glibc's ``malloc_trim`` in a thread when much of the resident memory is no longer in use.

    glibc returns only the free memory at the top of its heap by itself. One small object above it keeps all free
    memory below: after requests with large arrays a broker kept 80 MB although 14 MB were in use. Other threads that
    allocate wait for the trim: 5 ms for 32 MiB of free memory, 14 ms for 114 MiB.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._loop = LoopingCall(self._check)
        self._loop.clock = reactor
        self._least_unused_bytes = 0

    def start(self) -> None:
        """Check every 5 s; does nothing without glibc 2.33 or later."""
        if _malloc_trim is None or _mallinfo2 is None:
            return
        self._least_unused_bytes = _unused_bytes()
        running = self._loop.start(CHECK_INTERVAL_S, now=False)
        running.addErrback(lambda failure: log.failure("cannot trim the heap", failure))

    def stop(self) -> None:
        if self._loop.running:
            self._loop.stop()

    def _check(self) -> Deferred[None] | None:
        unused = _unused_bytes()
        self._least_unused_bytes = min(self._least_unused_bytes, unused)
        if unused - self._least_unused_bytes < TRIM_BYTES:
            return None
        trimming = deferToThreadPool(self._reactor, self._reactor.getThreadPool(), _malloc_trim, 0)
        return trimming.addCallback(self._trimmed)

    def _trimmed(self, _: int) -> None:
        self._least_unused_bytes = _unused_bytes()


def _unused_bytes() -> int:
    """Return the resident bytes outside of allocated heap blocks: free blocks, code, and Python's own arenas."""
    heap = _mallinfo2()
    return process_figures().resident_bytes - int(heap.uordblks) - int(heap.hblkhd)
