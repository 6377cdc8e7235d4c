"""Extraction of tar archives into a test's directory, on every supported Python version."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

HAS_FILTERS = hasattr(tarfile, "data_filter")
"""False on Python 3.11.0 to 3.11.3, which Debian 12 has."""


class UnsafeArchive(ValueError):
    """A member is neither a regular file nor a directory, or its path is outside the destination."""


def unpack(archive: tarfile.TarFile, directory: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """Extract an archive with ``tarfile``'s "data" filter, or with stricter checks if Python has no filters.

    :param members: the members to extract; all by default.
    :raise UnsafeArchive: a member was refused and Python has no filters.
    :raise tarfile.FilterError: a member was refused by the filter.
    """
    chosen = archive.getmembers() if members is None else list(members)
    if HAS_FILTERS:
        archive.extractall(directory, members=chosen, filter="data")
        return
    for member in chosen:
        _check(member)
    archive.extractall(directory, members=chosen)


def _check(member: tarfile.TarInfo) -> None:
    """Reject members that the "data" filter would reject or change: links, devices, outside paths, owners, modes."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise UnsafeArchive(f"{member.name} leaves the directory")
    if not (member.isreg() or member.isdir()):
        raise UnsafeArchive(f"{member.name} is not a regular file or a directory")
    member.uid = member.gid = -1
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
