"""Creates directories of new logs: individually, or many in advance in other threads."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from uuid import UUID

from kreplica.model import ZERO_UUID
from kreplica.runtime import Runtime
from kreplica.runtime.disk import Disk
from kreplica.runtime.gather import gather
from kreplica.storage.formats.checkpoints import PARTITION_METADATA, write_topic_id

_AT_ONCE_MAX = 50
"""Directories created per call in another thread."""

Wanted = Sequence[tuple[str, UUID]]
"""Paths and topic IDs (zero if the cluster has none)."""


class Made(Enum):
    """Previous content of the path of a new log directory."""

    EMPTY = "nothing"
    LEFT_OVER = "an older log's directory"


class NewDirectories:
    """New directories in one log directory."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._made: dict[str, Made | OSError] = {}
        """Directories created in advance, by path."""

    async def make(self, wanted: Wanted) -> None:
        """Create many directories in other threads; ``take`` reports errors.

        A busy disk takes milliseconds for each, which would block the reactor.
        """

        async def make_some(some: Wanted) -> list[Made | OSError]:
            return await self._runtime.offload.run(_make_all, self._runtime.disk, some)

        starts = range(0, len(wanted), _AT_ONCE_MAX)
        lists = await gather([make_some(wanted[start : start + _AT_ONCE_MAX]) for start in starts])
        made = [each for some in lists for each in some]
        self._made.update(zip((path for path, _ in wanted), made, strict=True))

    def take(self, path: str, topic_id: UUID) -> Made:
        """Return a directory created in advance, or create it now.

        :raise OSError: the device failed.
        """
        made = self._made.pop(path, None) or _make(self._runtime.disk, path, topic_id)
        if isinstance(made, OSError):
            raise made
        return made


def _make(disk: Disk, path: str, topic_id: UUID) -> Made:
    """Create a log's directory with its topic id."""
    made = Made.LEFT_OVER if disk.exists(path) else Made.EMPTY
    try:
        disk.make_directories(path)
        if topic_id != ZERO_UUID:
            write_topic_id(disk, f"{path}/{PARTITION_METADATA}", topic_id, sync=False)
    except OSError:
        if made is Made.EMPTY:
            _discard(disk, path)
        raise
    return made


def _discard(disk: Disk, path: str) -> None:
    """Remove a partly created directory, which would otherwise never be deleted."""
    try:
        disk.remove_tree(path)
    except OSError:
        pass  # the next start finds the device failure


def _make_all(disk: Disk, work: Wanted) -> list[Made | OSError]:
    """Create many directories; an error of one does not affect the others."""
    made: list[Made | OSError] = []
    for path, topic_id in work:
        try:
            made.append(_make(disk, path, topic_id))
        except OSError as error:
            made.append(error)
    return made
