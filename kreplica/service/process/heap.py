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
EXCESS_BYTES = 32 << 20
"""Resident memory above the level after the last trim that makes another trim worth its time."""

STEADY_BYTES = 1 << 20
"""Growth between two checks up to which the process counts as no longer growing."""

_malloc_trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only


class HeapTrimmer:
    """Calls glibc's ``malloc_trim`` in a thread after the process has grown and stopped growing.

    glibc returns only the free memory at the top of its heap by itself. One small object above it keeps all free
    memory below: after requests with large arrays a broker kept 80 MB although 14 MB were in use. Other threads that
    allocate wait for the trim: 5 ms for 32 MiB of free memory, 14 ms for 114 MiB.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._loop = LoopingCall(self._check)
        self._loop.clock = reactor
        self._level_bytes = self._previous_bytes = process_figures().resident_bytes

    def start(self) -> None:
        """Check every 5 s; does nothing if the C library has no ``malloc_trim``."""
        if _malloc_trim is not None:
            running = self._loop.start(CHECK_INTERVAL_S, now=False)
            running.addErrback(lambda failure: log.failure("cannot trim the heap", failure))

    def stop(self) -> None:
        if self._loop.running:
            self._loop.stop()

    def _check(self) -> Deferred[None] | None:
        previous, self._previous_bytes = self._previous_bytes, process_figures().resident_bytes
        self._level_bytes = min(self._level_bytes, self._previous_bytes)
        excess, growth = self._previous_bytes - self._level_bytes, self._previous_bytes - previous
        if excess < EXCESS_BYTES or growth > STEADY_BYTES:
            return None
        trimming = deferToThreadPool(self._reactor, self._reactor.getThreadPool(), _malloc_trim, 0)
        return trimming.addCallback(self._trimmed)

    def _trimmed(self, _: int) -> None:
        self._level_bytes = self._previous_bytes = process_figures().resident_bytes
