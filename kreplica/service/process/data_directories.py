"""Checks the ownership of data directories.

In a world-writable directory such as /tmp, another user can first create the data directory or a symbolic link in its
place, and then read, change or redirect the data (decision 39).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from kreplica.errors import SettingsError
from kreplica.runtime.disk import make_directories_durably
from kreplica.runtime.os_disk import OsDisk

ROOT = 0


def make_data_directory(directory: str) -> None:
    """Create the directory of ``--data-dir`` and its parents unless they exist.

    :raise SettingsError: another user controls the directory, its path names a file, or it cannot be created.
    """
    check_owners([directory])
    for path in _components(directory):
        if not path.is_dir():
            kind = "a file, not a directory" if path.is_file() else "not a directory"
            raise SettingsError(f"--data-dir {directory}: {path} is {kind}; choose another --data-dir")
    try:
        make_directories_durably(OsDisk(), directory)
    except OSError as error:
        raise SettingsError(f"--data-dir {directory} cannot be created: {error.strerror}") from None


def check_owners(directories: Iterable[str], own_user: int | None = None) -> None:
    """Reject data directories that another user controls.

    Only existing path components are checked, because this process creates the others.

    :param own_user: expected owner's user ID; by default, that of this process.
    :raise SettingsError: a path component is another user's symbolic link, or belongs to another user inside a
        world-writable directory. Root is trusted.
    """
    trusted = (ROOT, os.geteuid() if own_user is None else own_user)
    for directory in directories:
        for path in _components(directory):
            _check(directory, path, trusted)


def _components(directory: str) -> Iterator[Path]:
    """Return the existing components of a path, following symbolic links, without the root directory."""
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
        fault = f"{path} belongs to the user with ID {info.st_uid}, in a world-writable directory"
    else:
        return
    raise SettingsError(
        f"{directory}: {fault}; that user could change its data. "
        f"Set another directory (log.dirs or --data-dir), or remove {path} if you did not create it"
    )
