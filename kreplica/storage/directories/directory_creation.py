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

NewPaths = Sequence[tuple[str, UUID]]
"""Paths and topic IDs (zero if the cluster has none)."""


class PreviousContent(Enum):
    """Content of a path before a log directory was created there."""

    EMPTY = "nothing"
    OLD_LOG = "an older log's directory"


class NewDirectories:
    """New directories in one log directory."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._results: dict[str, PreviousContent | OSError] = {}
        """Directories created in advance, by path."""

    async def create_many(self, paths: NewPaths) -> None:
        """Create many directories in other threads; ``get_or_create`` reports errors.

        On a busy disk each creation takes milliseconds, which would block the reactor.
        """

        async def create_part(part: NewPaths) -> list[PreviousContent | OSError]:
            return await self._runtime.offload.run(_create_all, self._runtime.disk, part)

        starts = range(0, len(paths), _AT_ONCE_MAX)
        lists = await gather([create_part(paths[start : start + _AT_ONCE_MAX]) for start in starts])
        all_results = [each for results in lists for each in results]
        self._results.update(zip((path for path, _ in paths), all_results, strict=True))

    def get_or_create(self, path: str, topic_id: UUID) -> PreviousContent:
        """Create a directory, unless ``create_many`` has, and return the previous content of its path.

        :raise OSError: the device failed.
        """
        result = self._results.pop(path, None) or _create(self._runtime.disk, path, topic_id)
        if isinstance(result, OSError):
            raise result
        return result


def _create(disk: Disk, path: str, topic_id: UUID) -> PreviousContent:
    """Create a log's directory with its topic ID."""
    previous = PreviousContent.OLD_LOG if disk.exists(path) else PreviousContent.EMPTY
    try:
        disk.make_directories(path)
        if topic_id != ZERO_UUID:
            write_topic_id(disk, f"{path}/{PARTITION_METADATA}", topic_id, sync=False)
    except OSError:
        if previous is PreviousContent.EMPTY:
            _discard(disk, path)
        raise
    return previous


def _discard(disk: Disk, path: str) -> None:
    """Remove a partly created directory, which would otherwise never be deleted."""
    try:
        disk.remove_tree(path)
    except OSError:
        pass  # the next start detects the device failure


def _create_all(disk: Disk, work: NewPaths) -> list[PreviousContent | OSError]:
    """Create many directories; an error for one does not affect the others."""
    results: list[PreviousContent | OSError] = []
    for path, topic_id in work:
        try:
            results.append(_create(disk, path, topic_id))
        except OSError as error:
            results.append(error)
    return results
