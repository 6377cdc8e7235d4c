"""A broker's files are not readable by other users."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kreplica.zookeeper.embedded import sqlite_store
from tests.support.standalone import StandaloneProcess


@pytest.fixture(autouse=True)
def _common_umask() -> Iterator[None]:
    """Set the umask of most shells; it makes files world-readable by default."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def readable_by_others(directory: Path) -> list[str]:
    """Return the files, directories and sockets on which the group or others have a permission."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.lstat().st_mode & 0o077)


def test_files_are_private(tmp_path: Path) -> None:
    """Only the broker's user can read records, the session's password and the coordinator's database."""
    with StandaloneProcess(tmp_path / "process") as process:
        names = {path.name for path in process.data_directory.rglob("*")}
        assert {"zookeeper-session", "coordinator.db"} <= names
        assert readable_by_others(process.data_directory) == []


def test_readable_database_is_made_private(tmp_path: Path) -> None:
    """A database that an earlier release created with the default umask is made private when it is opened."""
    path = tmp_path / "coordinator.db"
    path.touch(0o644)
    database = sqlite_store._open(str(path))
    try:
        assert readable_by_others(tmp_path) == []
    finally:
        database.close()
