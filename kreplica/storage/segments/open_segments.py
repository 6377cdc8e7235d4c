"""Limits the number of segments with an open file and indexes in memory, with least-recently-used eviction.

A broker with 10,000 partitions has tens of thousands of segments, and most are never read. Eviction only drops
references: a response that is being sent keeps its own reference to the file (``FileRange``).
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from typing import Protocol

from kreplica.runtime.disk import Disk, File

OPEN_MAX = 4096
"""Maximum number of open segments if the limit of open files is unknown."""

_OPEN_MOST = 65_536
"""Maximum number of open segments for any limit of open files, because each needs memory."""


def open_segments_max(open_files_max: int) -> int:
    """Return the maximum number of open segments: five eighths of all files; connections use the rest.

    If requests write to more partitions in turn than segments may be open, each of them opens a file.

    :param open_files_max: limit of open files of the process; 0 if it is unknown or shared with other brokers.
    """
    return max(OPEN_MAX, min(open_files_max // 8 * 5, _OPEN_MOST))


class Releasable(Protocol):
    """An object whose resources can be released and loaded again."""

    def release(self) -> None:
        """Release files and data that can be read again on demand."""


class OpenSegments:
    """Segments of one broker with an open file, least recently used first; not thread-safe.

    :param open_max: maximum number of open segments; the one in use is never released.
    """

    def __init__(self, open_max: int = OPEN_MAX) -> None:
        self._open_max = open_max
        self._open: OrderedDict[Releasable, None] = OrderedDict()
        self._newest: Releasable | None = None

    def __len__(self) -> int:
        return len(self._open)

    def touch(self, segment: Releasable) -> None:
        """Mark a segment as most recently used."""
        if segment is self._newest:
            return
        self._newest = segment
        open_ = self._open
        open_[segment] = None
        open_.move_to_end(segment)
        if len(open_) > self._open_max:
            self._release_oldest()

    def forget(self, segment: Releasable) -> None:
        """Remove a segment that holds no resources."""
        self._open.pop(segment, None)
        self._newest = None

    def open(self, disk: Disk, path: str, *, create: bool) -> File:
        """Open a file; if the process has no file descriptor left, half of the segments are released first."""
        try:
            return disk.open(path, create=create)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or len(self._open) < 2:
                raise
        for _ in range(len(self._open) // 2):
            self._release_oldest()
        return disk.open(path, create=create)

    def _release_oldest(self) -> None:
        segment, _ = self._open.popitem(last=False)
        self._newest = None
        segment.release()
