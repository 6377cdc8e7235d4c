"""Storage of an archive's metadata: local files, or a Hadoop file system (``hdfs://``, ``s3a://``).

Spark itself reads and writes the rows; this module handles the small metadata files and lists the data files.
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
from kreplica.transfer.complete_files import replaced_when_complete

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEMPORARY_SUFFIX = ".writing"
"""Suffix of files that are still being written."""

REPLACEMENT_SUFFIX = ".new"
"""Suffix of complete files that have yet to replace the previous version."""


class StoreError(KreplicaError):
    """A metadata file cannot be read or written."""


class FileEntry(NamedTuple):
    """A file or directory, and its size in bytes."""

    path: str
    size: int


class Store(Protocol):
    """File operations by absolute path, with ``/`` as separator."""

    def read(self, path: str) -> str | None:
        """Return the text of a file; None if it does not exist."""

    def write(self, path: str, text: str) -> None:
        """Write or replace a file; readers never see partial text."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a directory; empty if it does not exist."""

    def find(self, folder: str, pattern: str) -> list[FileEntry]:
        """Return the files and directories below a directory that match a shell pattern, sorted."""

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its contents; does nothing if the path does not exist."""

    def exclusive_lock(self, path: str) -> AbstractContextManager[None]:
        """Hold an exclusive lock on a file, if the store supports locks."""


class LocalStore:
    """Files on the local machine. On a cluster, the directory must be shared by all machines."""

    def read(self, path: str) -> str | None:
        try:
            return _local(path).read_text()
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        """Write a file atomically and sync it to disk."""
        target = _local(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
        with replaced_when_complete(target, temporary):
            temporary.write_text(text)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(_local(folder)))
        except FileNotFoundError:
            return []

    def find(self, folder: str, pattern: str) -> list[FileEntry]:
        return [FileEntry(str(each), each.stat().st_size) for each in sorted(_local(folder).glob(pattern))]

    def delete(self, path: str) -> None:
        target = _local(path)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    @contextmanager
    def exclusive_lock(self, path: str) -> Iterator[None]:
        """Hold an exclusive lock on a file; the lock of a process that dies is released.

        :raise StoreError: another process holds the lock.
        """
        target = _local(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(target, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(f"{target} is locked: another run is using it") from None
            yield
        finally:
            os.close(lock)


class HadoopStore:
    """A file system that Spark's JVM resolves by its URI scheme.

    Hadoop's rename does not replace files. Therefore a new version of a file is first stored, complete, with the suffix
    ``REPLACEMENT_SUFFIX``; it is read while the file itself does not exist.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = getattr(spark, "_jvm", None)
        if self._jvm is None:
            raise StoreError("a path with a scheme needs access to the JVM, which Spark Connect does not provide")

    def _at(self, path: str) -> tuple[Any, Any]:
        target = self._jvm.org.apache.hadoop.fs.Path(path)
        session: Any = self._spark
        return target.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()), target

    def read(self, path: str) -> str | None:
        # The path is tried twice, since a writer may rename the replacement between the first two attempts.
        for each in (path, path + REPLACEMENT_SUFFIX, path):
            system, target = self._at(each)
            if system.exists(target):
                return self._content(system, target)
        return None

    def _content(self, system: Any, target: Any) -> str:
        stream = system.open(target)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write or replace a file; after a crash, ``read`` returns the complete old text or the complete new text.

        :raise StoreError: the file system rejected a rename.
        """
        system, target = self._at(path)
        _, temporary = self._at(path + TEMPORARY_SUFFIX)
        _, replacement = self._at(path + REPLACEMENT_SUFFIX)
        stream = system.create(temporary, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        if system.exists(replacement):  # an earlier run crashed
            if system.exists(target):
                system.delete(replacement, False)
            else:
                self._rename(system, replacement, target)
        if not system.exists(target):
            self._rename(system, temporary, target)
            return
        self._rename(system, temporary, replacement)
        system.delete(target, False)
        self._rename(system, replacement, target)

    @staticmethod
    def _rename(system: Any, source: Any, target: Any) -> None:
        if not system.rename(source, target):
            raise StoreError(f"{target}: the file system rejected the rename")

    def names(self, folder: str) -> list[str]:
        system, target = self._at(folder)
        if not system.exists(target):
            return []
        return sorted(str(each.getPath().getName()) for each in system.listStatus(target))

    def find(self, folder: str, pattern: str) -> list[FileEntry]:
        system, target = self._at(f"{folder}/{pattern}")
        return sorted(FileEntry(each.getPath().toString(), each.getLen()) for each in system.globStatus(target) or ())

    def delete(self, path: str) -> None:
        system, target = self._at(path)
        system.delete(target, True)

    def exclusive_lock(self, path: str) -> AbstractContextManager[None]:
        """Do nothing: such file systems have no locks."""
        return nullcontext()


_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")


def normalize_path(path: str) -> str:
    """Return a path without a trailing slash; a path without a scheme becomes absolute."""
    scheme = _SCHEME.match(path)
    if scheme is None:
        return str(Path(path).absolute())
    if scheme[1] == "file":
        return f"file://{_local(path)}"
    return path.rstrip("/")


def store_of(path: str, spark: SparkSession | None = None) -> Store:
    """Return the store for a path, which is resolved as Spark resolves it.

    :param spark: required for a path with a scheme other than ``file:``. If the default file system of the
        session is not local, a path without a scheme refers to that file system.
    :raise StoreError: the path has a scheme, and there is no session.
    """
    scheme = _SCHEME.match(path)
    if scheme is not None and scheme[1] == "file":
        return LocalStore()
    if spark is None:
        if scheme is not None:
            raise StoreError(f"{path}: a Spark session is needed for this path")
        return LocalStore()
    if scheme is None and _default_scheme(spark) in ("file", None):
        return LocalStore()
    return HadoopStore(spark)


def _default_scheme(spark: SparkSession) -> str | None:
    """Return the scheme of the session's default file system."""
    session: Any = spark
    if getattr(spark, "_jvm", None) is None:
        return None
    conf = session._jsparkSession.sessionState().newHadoopConf()
    found: str = session._jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(conf).getScheme()
    return found


def _local(path: str) -> Path:
    found = Path(path.removeprefix("file:"))
    return Path("/", *found.parts[1:]) if path.startswith("file:") else found
