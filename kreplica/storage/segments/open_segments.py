"""A bound on how many segments have a file open and indexes in memory: the least recently used let go first.

A broker with 10,000 partitions has tens of thousands of segments; most are never read.  Letting go only drops
references: an answer that is still being sent keeps its file open by itself (``FileRange``).
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from typing import Protocol

from kreplica.runtime.disk import Disk, File

OPEN_MAX = 4096


class Releasable(Protocol):
    """Something that holds what can be had again."""

    def release(self) -> None:
        """Let go of files and of what can be read again; it comes back when it is needed."""


class OpenSegments:
    """The segments of one broker that hold a file, least recently used first; used on one thread only.

    :param open_max: how many may; the one that is being used always may.
    """

    def __init__(self, open_max: int = OPEN_MAX) -> None:
        self._open_max = open_max
        self._held: OrderedDict[Releasable, None] = OrderedDict()
        self._newest: Releasable | None = None

    def __len__(self) -> int:
        return len(self._held)

    def touch(self, segment: Releasable) -> None:
        """Note that it is used now."""
        if segment is self._newest:
            return
        self._newest = segment
        held = self._held
        held[segment] = None
        held.move_to_end(segment)
        if len(held) > self._open_max:
            self._release_oldest()

    def forget(self, segment: Releasable) -> None:
        """Note that it holds nothing any more."""
        self._held.pop(segment, None)
        self._newest = None

    def open(self, disk: Disk, path: str, *, create: bool) -> File:
        """Open a file; where the process has no descriptor left, half of the held segments let go first."""
        try:
            return disk.open(path, create=create)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or len(self._held) < 2:
                raise
        for _ in range(len(self._held) // 2):
            self._release_oldest()
        return disk.open(path, create=create)

    def _release_oldest(self) -> None:
        segment, _ = self._held.popitem(last=False)
        self._newest = None
        segment.release()
