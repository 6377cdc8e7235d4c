"""Returns free memory in the C heap, left by large requests, to the operating system."""

from __future__ import annotations

import ctypes
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from kreplica.runtime.process_usage import process_usage

log = Logger()

CHECK_INTERVAL_S = 5.0
EXCESS_BYTES = 32 << 20
"""Growth of resident memory above its lowest level at which a trim is worth its time."""

CHANGE_BYTES = 8 << 20
"""Change in resident memory after which the next check may trim; also the minimum that a useful trim releases."""

TRIM_INTERVAL_MAX_S = 3600.0

_malloc_trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only


class HeapTrimmer:
    """Calls glibc's ``malloc_trim`` in a thread while resident memory is above its lowest level.

    By itself, glibc returns only the free memory at the top of its heap, so a single small object at the top retains
    all free memory below it: after requests with large arrays, a broker kept 80 MB although 14 MB were in use. Other
    threads that allocate wait for the trim: 5 ms for 32 MiB of free memory, 14 ms for 114 MiB. Therefore the interval
    doubles after each trim that released little, until resident memory changes.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._loop = LoopingCall(self._check)
        self._loop.clock = reactor
        self._lowest_bytes = self._previous_bytes = self._trimmed_bytes = process_usage().resident_bytes
        self._interval_s = CHECK_INTERVAL_S
        self._next_trim_s = 0.0

    def start(self) -> None:
        """Check every 5 s; does nothing if the C library has no ``malloc_trim``."""
        if _malloc_trim is not None:
            running = self._loop.start(CHECK_INTERVAL_S, now=False)
            running.addErrback(lambda failure: log.failure("cannot trim the heap", failure))

    def stop(self) -> None:
        if self._loop.running:
            self._loop.stop()

    def _check(self) -> Deferred[None] | None:
        previous, resident = self._previous_bytes, process_usage().resident_bytes
        self._previous_bytes = resident
        self._lowest_bytes = min(self._lowest_bytes, resident)
        now_s = self._reactor.seconds()
        if abs(resident - self._trimmed_bytes) >= CHANGE_BYTES:
            self._interval_s, self._next_trim_s = CHECK_INTERVAL_S, 0.0
        is_growing = resident - previous >= CHANGE_BYTES
        if resident - self._lowest_bytes < EXCESS_BYTES or is_growing or now_s < self._next_trim_s:
            return None
        trimming = deferToThreadPool(self._reactor, self._reactor.getThreadPool(), _malloc_trim, 0)
        return trimming.addCallback(self._trimmed, resident)

    def _trimmed(self, _: int, before: int) -> None:
        self._trimmed_bytes = self._previous_bytes = process_usage().resident_bytes
        is_useful = before - self._trimmed_bytes >= CHANGE_BYTES
        self._interval_s = CHECK_INTERVAL_S if is_useful else min(2 * self._interval_s, TRIM_INTERVAL_MAX_S)
        self._next_trim_s = self._reactor.seconds() + self._interval_s
