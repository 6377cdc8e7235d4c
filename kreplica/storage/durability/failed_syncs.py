"""The mark that a failed sync leaves in a log directory, for whoever starts on the same device.

Linux takes pages that could not be written back for clean: programs go on reading them from memory, the next sync
says that all is well, and only a power loss shows that they never reached the device.  So the next start writes what
was not synced before anew (``loading``): only then can a sync be believed.  The mark itself need not be durable, for
after a power loss what is read comes from the device.
"""

from __future__ import annotations

import posixpath

from twisted.logger import Logger

from kreplica.runtime.disk import Disk

FILE_NAME = "failed-sync"

_log = Logger()


def leave_mark(disk: Disk, directory: str, error: OSError) -> None:
    """Note in a log directory that a sync failed there; where even that fails, it stands in the log only."""
    try:
        disk.write_file(posixpath.join(directory, FILE_NAME), f"{error}\n".encode(), sync=False)
    except OSError as second:
        _log.error(
            "{path}: a sync failed, and that cannot be noted ({why}): before the next start the device is to be "
            "unmounted and mounted again, so that nothing is read that is in memory only",
            path=directory,
            why=str(second),
        )


def is_marked(disk: Disk, directory: str) -> bool:
    """Whether a sync failed since all that was not synced was last written anew."""
    return disk.exists(posixpath.join(directory, FILE_NAME))


def remove_mark(disk: Disk, directory: str) -> None:
    """Forget it, once all is written anew.

    :raise OSError: the device fails.
    """
    disk.remove(posixpath.join(directory, FILE_NAME))
