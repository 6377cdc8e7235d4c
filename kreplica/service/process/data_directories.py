"""Whose directories a process keeps its data in.

In a directory that everybody may write to, such as /tmp, another user can make the data directory first, or a symbolic
link in its place, and then read, change or redirect what is written there (decision 39).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from kreplica.errors import SettingsError

ROOT = 0


def check_owners(directories: Iterable[str], own_user: int | None = None) -> None:
    """Refuse data directories that another user controls.

    Directories that do not exist yet are made by this process, so only what exists is looked at.

    :param own_user: the user ID of this process unless given.
    :raise SettingsError: a part of a path is a symbolic link of another user, or lies in a directory that everybody
        may write to and belongs to another user. Root is trusted.
    """
    trusted = (ROOT, os.geteuid() if own_user is None else own_user)
    for directory in directories:
        for path in _places(directory):
            _check(directory, path, trusted)


def _places(directory: str) -> Iterator[Path]:
    """The parts of a path that exist, those behind symbolic links included, without the root directory."""
    found = dict.fromkeys(
        place
        for path in (Path(os.path.abspath(directory)), Path(os.path.realpath(directory)))
        for place in (path, *path.parents)
    )
    return (place for place in found if os.path.lexists(place) and place != place.parent)


def _check(directory: str, path: Path, trusted: tuple[int, int]) -> None:
    info = path.lstat()
    if info.st_uid in trusted:
        return
    if stat.S_ISLNK(info.st_mode):
        fault = f"{path} is a symbolic link of the user with ID {info.st_uid}"
    elif path.parent.stat().st_mode & stat.S_IWOTH:
        fault = f"{path} belongs to the user with ID {info.st_uid}, in a directory that everybody may write to"
    else:
        return
    raise SettingsError(
        f"{directory}: {fault}, who could change its data; "
        "set another directory (log.dirs; --data-dir), or remove it if it is not yours"
    )
