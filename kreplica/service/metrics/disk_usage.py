"""Free space in the log directories, read in another thread and cached, because a failing disk may not respond."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.runtime import Runtime
from kreplica.runtime.disk import Disk

log = Logger()

INTERVAL_S = 2.0
"""Minimum time between two reads."""

Usage = dict[str, tuple[int, int]]
"""Total and free bytes by directory; directories that cannot be read are omitted."""


class DiskUsage:
    """Reads the free space on demand; callers do not wait for it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: Usage = {}
        self._reading: Deferred[None] | None = None
        self._last_read_s: float | None = None

    def current(self, paths: Iterable[str]) -> Usage:
        """Return the last known values, and start reading new ones if they are old."""
        now_s = self._runtime.reactor.seconds()
        if self._reading is None and (self._last_read_s is None or now_s - self._last_read_s >= INTERVAL_S):
            self._last_read_s = now_s
            self._reading = reading = read_usage(self._runtime, list(paths)).addCallback(self._store)
            reading.addErrback(lambda failure: log.failure("reading the free space failed", failure))
            reading.addBoth(self._ended)
        return self._known

    def _store(self, usage: Usage) -> None:
        self._known = usage

    def _ended(self, _: None) -> None:
        self._reading = None


def read_usage(runtime: Runtime, paths: list[str]) -> Deferred[Usage]:
    """Return the total and free bytes of each directory's disk."""
    return runtime.offload.run(_usage_by_path, runtime.disk, paths)


def _usage_by_path(disk: Disk, paths: list[str]) -> Usage:
    found = {}
    for path in paths:
        try:
            found[path] = disk.usage(path)
        except OSError:
            continue  # the log directories detect the failure themselves
    return found
