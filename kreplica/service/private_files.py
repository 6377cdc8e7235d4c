"""Keeps what a process writes from the other users of the machine."""

from __future__ import annotations

import os

OTHERS = 0o077
"""The permission bits of the group and of all others."""


def keep_files_private() -> None:
    """Make files with mode 0600 and directories with 0700 from now on, data, logs, sessions and sockets alike.

    ``twistd --umask`` is applied later, for those who want a group to read the data.
    """
    os.umask(os.umask(OTHERS) | OTHERS)
