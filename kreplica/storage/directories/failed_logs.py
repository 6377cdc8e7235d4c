"""Logs of one directory that cannot be used, and their repair.

Damaged files are never deleted: they are renamed to end in ``.damaged``, for an operator to inspect or remove.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID

from twisted.logger import Logger

from kreplica.errors import StorageError
from kreplica.runtime.disk import Disk
from kreplica.storage.directories.opening import LogToOpen
from kreplica.storage.log.log import Log
from kreplica.storage.producers.snapshots import SNAPSHOT_SUFFIX
from kreplica.storage.segments.damage import Damage
from kreplica.storage.segments.segment import LOG_SUFFIX, SUFFIXES

DAMAGED_SUFFIX = ".damaged"

_log = Logger()


@dataclass(frozen=True, slots=True)
class FailedLog:
    """A log that cannot be used.

    :param error: the reason.
    :param to_open: arguments to open it again.
    :param log: the log if it was in use; None if it could not be opened at startup.
    """

    error: StorageError
    to_open: LogToOpen
    log: Log | None = None

    @property
    def undamaged_end(self) -> int:
        """Base offset of the damaged segment; 0 if unknown. Earlier segments have no known damage."""
        return self.error.base_offset if isinstance(self.error, Damage) else 0

    def set_damage_aside(self) -> tuple[Log, UUID]:
        """Set the damaged segment and all later ones aside, and open the earlier ones; blocks.

        :return: see ``LogToOpen.open``.
        :raise StorageError: the earlier segments are also damaged.
        :raise OSError: the device failed.
        """
        to_open = self.to_open
        set_aside(to_open.disk, to_open.path, self.undamaged_end, to_open.wall_clock_ms())
        recovery_point = min(to_open.recovery_point, self.undamaged_end)
        return replace(to_open, recovery_point=recovery_point, clean_shutdown=False).open()


def set_aside(disk: Disk, directory: str, base_offset: int, now_ms: int) -> None:
    """Rename the segments from a base offset on, and remove their files that can be rebuilt.

    The last segment is renamed first, so that an interruption leaves no gap.

    :raise OSError: the device failed.
    """
    for name, offset in reversed(list(_segment_files(disk.list_directory(directory)))):
        path = f"{directory}/{name}"
        if name.endswith(LOG_SUFFIX) and offset >= base_offset:
            disk.rename(path, f"{path}.{now_ms}{DAMAGED_SUFFIX}")
            _log.warn(
                "{path} is damaged or follows a damaged segment; it is renamed to {name}.{now}.damaged",
                path=path,
                name=name,
                now=now_ms,
            )
        elif offset > base_offset or (offset == base_offset and not name.endswith(SNAPSHOT_SUFFIX)):
            disk.remove(path)
    disk.sync_directory(directory)


def _segment_files(names: list[str]) -> Iterator[tuple[str, int]]:
    """Yield the names of segment files, each with its offset."""
    for name in names:
        stem, dot, suffix = name.partition(".")
        if stem.isdecimal() and dot + suffix in SUFFIXES:
            yield name, int(stem)
