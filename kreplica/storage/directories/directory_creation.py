"""Making the directories of new logs: one when it is needed, or many beforehand, away from the reactor."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from uuid import UUID

from kreplica.model import ZERO_UUID
from kreplica.runtime import Runtime
from kreplica.runtime.disk import Disk
from kreplica.runtime.together import together
from kreplica.storage.formats.checkpoints import PARTITION_METADATA, write_topic_id

_AT_ONCE_MAX = 50
"""Directories made by one call on another thread."""

Wanted = Sequence[tuple[str, UUID]]
"""Paths, each with its topic's id (zero where the cluster has none)."""


class Made(Enum):
    """What was found where a log's directory was to be made."""

    EMPTY = "nothing"
    LEFT_OVER = "an older log's directory"


class NewDirectories:
    """Of one log directory."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._made: dict[str, Made | OSError] = {}
        """Those that wait for their log."""

    async def make(self, wanted: Wanted) -> None:
        """Make many on other threads; ``take`` tells errors.

        A busy disk takes milliseconds for each, in which the reactor has better things to do.
        """

        async def make_some(some: Wanted) -> list[Made | OSError]:
            return await self._runtime.offload.run(_make_all, self._runtime.disk, some)

        starts = range(0, len(wanted), _AT_ONCE_MAX)
        lists = await together([make_some(wanted[start : start + _AT_ONCE_MAX]) for start in starts])
        made = [each for some in lists for each in some]
        self._made.update(zip((path for path, _ in wanted), made, strict=True))

    def take(self, path: str, topic_id: UUID) -> Made:
        """What was made beforehand, or is made now.

        :raise OSError: the device fails.
        """
        made = self._made.pop(path, None) or _make(self._runtime.disk, path, topic_id)
        if isinstance(made, OSError):
            raise made
        return made


def _make(disk: Disk, path: str, topic_id: UUID) -> Made:
    """Make a log's directory, and note whose it is."""
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
    """Leave nothing of a directory that could not be made whole: nobody knows of it, so nobody would ever delete it."""
    try:
        disk.remove_tree(path)
    except OSError:
        pass  # the device fails: the next start finds it


def _make_all(disk: Disk, work: Wanted) -> list[Made | OSError]:
    """Make many; an error of one leaves the others alone."""
    made: list[Made | OSError] = []
    for path, topic_id in work:
        try:
            made.append(_make(disk, path, topic_id))
        except OSError as error:
            made.append(error)
    return made
