"""Metadata files of an archive on a Hadoop file system, whose rename does not replace files."""

from __future__ import annotations

import io
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from kreplica.spark.pipelines.archive.file_stores import HadoopStore

PATH = "hdfs://name/archive/archive.json"


class Crash(Exception):
    """Simulates the end of the process."""


class FileSystem:
    """Fake of the part of Hadoop's ``FileSystem`` that the store uses; files are visible while they are written.

    :ivar changes_left: number of changes before the process crashes.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.changes_left = 1000

    def _change(self) -> None:
        if not self.changes_left:
            raise Crash
        self.changes_left -= 1

    def exists(self, path: str) -> bool:
        return path in self.files

    def open(self, path: str) -> io.BytesIO:
        return io.BytesIO(self.files[path])

    def create(self, path: str, overwrite: bool) -> Any:
        self._change()
        self.files[path] = b""

        def write(data: bytes) -> None:
            self._change()
            self.files[path] = bytes(data)

        return SimpleNamespace(write=write, close=lambda: None)

    def delete(self, path: str, recursive: bool) -> bool:
        self._change()
        return self.files.pop(path, None) is not None

    def rename(self, source: str, target: str) -> bool:
        self._change()
        if target in self.files:
            return False
        self.files[target] = self.files.pop(source)
        return True


class Path(str):
    """Fake of Hadoop's ``Path``."""

    system: FileSystem

    def getFileSystem(self, _: object) -> FileSystem:
        return self.system


def new_store(system: FileSystem) -> HadoopStore:
    path = type("PathOf", (Path,), {"system": system})
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=path))
    commons = SimpleNamespace(io=SimpleNamespace(IOUtils=SimpleNamespace(toByteArray=lambda stream: stream.read())))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop, commons=commons)))
    state = SimpleNamespace(newHadoopConf=lambda: None)
    session = SimpleNamespace(_jvm=jvm, _jsparkSession=SimpleNamespace(sessionState=lambda: state))
    return HadoopStore(session)  # type: ignore[arg-type]


def test_write_and_replace() -> None:
    """After a file is replaced, no other file remains."""
    system = FileSystem()
    store = new_store(system)
    assert store.read(PATH) is None
    store.write(PATH, "first")
    store.write(PATH, "second")
    assert store.read(PATH) == "second"
    assert list(system.files) == [PATH]


@pytest.mark.parametrize("changes", range(8))
def test_crash_leaves_the_old_or_the_new_text(changes: int) -> None:
    """After a crash at any change, the file can be read and written again."""
    system = FileSystem()
    store = new_store(system)
    store.write(PATH, "old")
    system.changes_left = changes
    with suppress(Crash):
        store.write(PATH, "new")
    system.changes_left = 1000
    assert store.read(PATH) in ("old", "new")
    store.write(PATH, "newer")
    assert store.read(PATH) == "newer"
    assert list(system.files) == [PATH]


@pytest.mark.parametrize("changes", range(4))
def test_crash_while_a_file_is_created(changes: int) -> None:
    """After a crash, the new file is either complete or read as missing."""
    system = FileSystem()
    store = new_store(system)
    system.changes_left = changes
    with suppress(Crash):
        store.write(PATH, "new")
    system.changes_left = 1000
    assert store.read(PATH) in (None, "new")
