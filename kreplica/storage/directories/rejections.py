"""Appends that one log directory rejected for lack of space, file descriptors or memory.

Nothing signals the end of this state: the directory accepts appends again as soon as there is free space.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

from twisted.logger import Logger

from kreplica.model import TopicPartition
from kreplica.runtime.disk import is_full
from kreplica.storage.log.log import Log

_log = Logger()

FULL_BYTES = 64 * 1024
"""A disk with less free space is full, even if it has rejected no append."""

ROOM_BYTES = 64 * 1024 * 1024
"""A disk with more free space is not full, even if it has rejected an append."""

WARNING_INTERVAL_S = 60.0
"""Minimum interval between warnings in the log."""

RECENT_S = 60.0
"""Time after which a rejection for a reason other than space is considered over."""


class Rejection(NamedTuple):
    """The last rejected append of a log.

    :param end_offset: log end offset at that time; the log has accepted an append since if it has changed.
    """

    log: Log
    error: OSError
    at_s: float
    end_offset: int


class Rejections:
    """Rejected appends of one directory; at most one for each log.

    :param path: the directory.
    :param seconds: the reactor's clock.
    """

    def __init__(self, path: str, seconds: Callable[[], float]) -> None:
        self._path = path
        self._seconds = seconds
        self._by_log: dict[TopicPartition, Rejection] = {}
        self._warned_s = -WARNING_INTERVAL_S

    def note(self, log: Log, error: OSError) -> None:
        """Record a rejected append, and log a warning at most once in ``WARNING_INTERVAL_S``."""
        now_s = self._seconds()
        self._by_log[log.topic_partition] = Rejection(log, error, now_s, log.log_end_offset)
        if now_s >= self._warned_s + WARNING_INTERVAL_S:
            self._warned_s = now_s
            _log.warn(
                "{path} {why}: appends are rejected until it is writable again ({error})",
                path=self._path,
                why="is full" if is_full(error) else "cannot be written",
                error=str(error),
            )

    def current(self, usable_bytes: int | None) -> list[Rejection]:
        """Return the rejections that have not ended, latest first.

        :param usable_bytes: free space of the disk; None if unknown.
        """
        now_s = self._seconds()
        self._by_log = {
            key: rejection for key, rejection in self._by_log.items() if not _has_ended(rejection, now_s, usable_bytes)
        }
        return sorted(self._by_log.values(), key=lambda rejection: -rejection.at_s)

    def of(self, key: TopicPartition) -> Rejection | None:
        """Return the last rejection of a log, unless it has ended; call ``current`` first."""
        return self._by_log.get(key)


def _has_ended(rejection: Rejection, now_s: float, usable_bytes: int | None) -> bool:
    log = rejection.log
    if log.owner is None or log.log_end_offset != rejection.end_offset:
        return True
    if rejection.error.errno == errno.ENOSPC and usable_bytes is not None:
        return usable_bytes >= ROOM_BYTES
    return now_s - rejection.at_s > RECENT_S
