"""Where an archive's own notes are kept: this machine's files, or a file system of Hadoop's (``hdfs://``, ``s3a://``).

Rows are written and read by Spark itself; here are only the small files beside them, and the listing of large ones.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kreplica.errors import KreplicaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITING = ".writing"
"""What names of files end with that are not whole yet."""


class StoreFailed(KreplicaError):
    """A file of an archive's own cannot be read or written."""


class Found(NamedTuple):
    """A file.

    :param size: in bytes.
    """

    path: str
    size: int


class Store(Protocol):
    """Files by their whole paths, with ``/`` between names."""

    def read(self, path: str) -> str | None:
        """A file's text; None: there is no such file."""

    def write(self, path: str, text: str) -> None:
        """Write a file whole, or not at all; one that is there is replaced."""

    def names(self, folder: str) -> list[str]:
        """What is in a folder; nothing where there is no such folder."""

    def find(self, folder: str, pattern: str) -> list[Found]:
        """Files and folders below a folder by a pattern of the shell's, sorted."""

    def delete(self, path: str) -> None:
        """Delete a file, or a folder and all in it; nothing where it is not there."""

    def alone(self, path: str) -> AbstractContextManager[None]:
        """Nobody else has the same file in this way meanwhile, as far as the store can see to that."""


class LocalStore:
    """This machine's files: on a cluster, a folder that all its machines share."""

    def read(self, path: str) -> str | None:
        """As ``Store.read``."""
        try:
            return _local(path).read_text()
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        """As ``Store.write``; on the disk when it returns."""
        target = _local(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        writing = target.with_name(target.name + WRITING)
        with writing.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        writing.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def names(self, folder: str) -> list[str]:
        """As ``Store.names``."""
        try:
            return sorted(os.listdir(_local(folder)))
        except FileNotFoundError:
            return []

    def find(self, folder: str, pattern: str) -> list[Found]:
        """As ``Store.find``."""
        return [Found(str(each), each.stat().st_size) for each in sorted(_local(folder).glob(pattern))]

    def delete(self, path: str) -> None:
        """As ``Store.delete``."""
        target = _local(path)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    @contextmanager
    def alone(self, path: str) -> Iterator[None]:
        """As ``Store.alone``; a process that dies has it no longer.

        :raise StoreFailed: somebody has it.
        """
        target = _local(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(target, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreFailed(f"{target} is locked: another run is at work there") from None
            yield
        finally:
            os.close(lock)


class HadoopStore:
    """A file system that Spark knows by a scheme, through the session's virtual machine.

    Where renaming is no single step (object stores), a file is still there whole or not at all.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = getattr(spark, "_jvm", None)
        if self._jvm is None:
            raise StoreFailed("a path with a scheme needs a session with a virtual machine, which Spark Connect hides")

    def _at(self, path: str) -> tuple[Any, Any]:
        target = self._jvm.org.apache.hadoop.fs.Path(path)
        java: Any = self._spark
        return target.getFileSystem(java._jsparkSession.sessionState().newHadoopConf()), target

    def read(self, path: str) -> str | None:
        """As ``Store.read``."""
        system, target = self._at(path)
        if not system.exists(target):
            return None
        stream = system.open(target)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """As ``Store.write``.

        :raise StoreFailed: the file system refuses.
        """
        system, target = self._at(path)
        _, writing = self._at(path + WRITING)
        stream = system.create(writing, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        if system.exists(target):
            system.delete(target, False)
        if not system.rename(writing, target):
            raise StoreFailed(f"{path}: the file system does not rename to it")

    def names(self, folder: str) -> list[str]:
        """As ``Store.names``."""
        system, target = self._at(folder)
        if not system.exists(target):
            return []
        return sorted(str(each.getPath().getName()) for each in system.listStatus(target))

    def find(self, folder: str, pattern: str) -> list[Found]:
        """As ``Store.find``."""
        system, target = self._at(f"{folder}/{pattern}")
        return sorted(Found(each.getPath().toString(), each.getLen()) for each in system.globStatus(target) or ())

    def delete(self, path: str) -> None:
        """As ``Store.delete``."""
        system, target = self._at(path)
        system.delete(target, True)

    def alone(self, path: str) -> AbstractContextManager[None]:
        """Nothing: such file systems have no locks."""
        return nullcontext()


_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")


def plain_path(path: str) -> str:
    """The same path without a slash at its end; one without a scheme is made whole."""
    scheme = _SCHEME.match(path)
    if scheme is None:
        return str(Path(path).absolute())
    if scheme[1] == "file":
        return f"file://{_local(path)}"
    return path.rstrip("/")


def store_of(path: str, spark: SparkSession | None = None) -> Store:
    """The store for a path: what Spark means by it too.

    :param spark: needed for a path with a scheme; where its file system is another one than this machine's, a path
        without a scheme is one of that.
    :raise StoreFailed: there is no session, and the path has a scheme.
    """
    scheme = _SCHEME.match(path)
    if scheme is not None and scheme[1] == "file":
        return LocalStore()
    if spark is None:
        if scheme is not None:
            raise StoreFailed(f"{path}: only a Spark session reaches that")
        return LocalStore()
    if scheme is None and _default_scheme(spark) in ("file", None):
        return LocalStore()
    return HadoopStore(spark)


def _default_scheme(spark: SparkSession) -> str | None:
    """Of paths that have none."""
    java: Any = spark
    if getattr(spark, "_jvm", None) is None:
        return None
    conf = java._jsparkSession.sessionState().newHadoopConf()
    found: str = java._jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(conf).getScheme()
    return found


def _local(path: str) -> Path:
    found = Path(path.removeprefix("file:"))
    return Path("/", *found.parts[1:]) if path.startswith("file:") else found
