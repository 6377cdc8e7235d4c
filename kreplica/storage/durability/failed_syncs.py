"""Marker file that a failed sync leaves in a log directory for the next start.

After a failed write-back Linux marks the pages clean: reads return them from memory, and the next sync succeeds,
although they never reached the device and a power loss would lose them. The next start therefore rewrites all records
that were not synced (``recovery.loading``), after which a sync is reliable. The marker itself need not be durable,
because after a power loss reads return the bytes on the device.
"""

from __future__ import annotations

import posixpath

from twisted.logger import Logger

from kreplica.runtime.disk import Disk

FILE_NAME = "failed-sync"

_log = Logger()


def write_marker(disk: Disk, directory: str, error: OSError) -> None:
    """Write the marker after a failed sync; if that fails too, log an error."""
    try:
        disk.write_file(posixpath.join(directory, FILE_NAME), f"{error}\n".encode(), sync=False)
    except OSError as second:
        _log.error(
            "{path}: a sync failed, and its marker cannot be written ({why}): before the next start, unmount and "
            "mount the device again, so that data that exists only in memory is not read",
            path=directory,
            why=str(second),
        )


def has_marker(disk: Disk, directory: str) -> bool:
    """True if a sync failed and the records have not been rewritten since."""
    return disk.exists(posixpath.join(directory, FILE_NAME))


def remove_marker(disk: Disk, directory: str) -> None:
    """Remove the marker after all records were rewritten.

    :raise OSError: the device failed.
    """
    disk.remove(posixpath.join(directory, FILE_NAME))
