"""Other users of the machine read nothing of what a broker writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kreplica.zookeeper.embedded import sqlite_store
from tests.support.standalone import StandaloneProcess


@pytest.fixture(autouse=True)
def _common_umask() -> Iterator[None]:
    """Start processes as most shells do, with files that everybody may read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def readable_by_others(directory: Path) -> list[str]:
    """The files and directories, sockets included, that have a permission for the group or for all."""
    return sorted(
        str(path.relative_to(directory)) for path in directory.rglob("*") if path.lstat().st_mode & 0o077
    )


def test_nobody_else_reads_the_data(tmp_path: Path) -> None:
    """Records, the session's password and the coordinator's database are made for the broker's user only."""
    with StandaloneProcess(tmp_path / "process") as process:
        names = {path.name for path in process.data_directory.rglob("*")}
        assert {"zookeeper-session", "coordinator.db"} <= names
        assert readable_by_others(process.data_directory) == []


def test_a_database_that_others_could_read_is_tightened(tmp_path: Path) -> None:
    """One that a release before made with the common umask, with its journals."""
    path = tmp_path / "coordinator.db"
    path.touch(0o644)
    database = sqlite_store._open(str(path))
    try:
        assert readable_by_others(tmp_path) == []
    finally:
        database.close()
