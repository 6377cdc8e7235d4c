"""How an archive of topics lies on a disk; no Spark in it.

::

    <archive>/topic=orders/day=2026-11-22/batch=7/part-....parquet    the records
    <archive>/_archive/archive.json       of which cluster, which topics, how
    <archive>/_archive/batches/7.json     what batch 7 holds: written last, so a batch without it is not there
    <archive>/_archive/schema.json        where values are JSON: the fields that they had until now
    <archive>/_archive/checkpoint/        Spark's, of the stream that writes

Spark leaves out names that begin with an underscore, so the whole folder can be read as one table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.archive.file_stores import LocalStore, Store, plain_path

FORMAT = 1
NOTES = "_archive"
VALUES = ("binary", "json")

COLUMNS = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")
"""In the files; ``topic``, ``day`` and ``batch`` are in their paths, ``json`` is there where values are JSON."""

_DAY = re.compile(r"/day=([^/]*)/")
_TOPIC = re.compile(r"^topic=([^/]*)/")


class NoArchive(KreplicaError):
    """What is at a path is no archive, or none that can be read; the text says why."""


class ArchivedRange(NamedTuple):
    """What a batch has of a partition.

    :param start: of the offsets that it covers, ``end`` behind the last of them.
    :param records: that were there; fewer than offsets where topics are compacted or transactions were written.
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int


class ArchivedFile(NamedTuple):
    """A Parquet file.

    :param path: below the archive's.
    :param size: in bytes.
    """

    path: str
    size: int

    @property
    def topic(self) -> str:
        """Whose records it has."""
        return _first(_TOPIC, self.path)

    @property
    def day(self) -> str:
        """Of their timestamps, in UTC: ``2026-11-22``."""
        return _first(_DAY, self.path)


@dataclass(frozen=True, slots=True)
class Batch:
    """What is there once and whole.

    :param written_ms: when, in milliseconds since 1970.
    """

    number: int
    ranges: tuple[ArchivedRange, ...]
    files: tuple[ArchivedFile, ...]
    written_ms: int = 0

    @property
    def records(self) -> int:
        """Of all partitions."""
        return sum(each.records for each in self.ranges)

    @property
    def size(self) -> int:
        """Of the files, in bytes."""
        return sum(each.size for each in self.files)

    def ends(self) -> dict[TopicPartition, int]:
        """Behind the last offset of each partition in it."""
        return {TopicPartition(each.topic, each.partition): each.end for each in self.ranges}


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Of which cluster an archive is, of which topics, and how it was made.

    :param topics: by name; none where there is a ``pattern``.
    :param read_committed: records of transactions that are open or were aborted are not in it.
    :param values: ``binary``, or ``json``: they are parsed into a column ``json`` too.
    """

    cluster_id: str | None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    read_committed: bool = True
    values: str = "binary"
    codec: str = "zstd"
    made_ms: int = 0

    def selection(self) -> dict[str, str]:
        """The same topics as an option of the source."""
        return {"subscribe": ",".join(self.topics)} if self.pattern is None else {"subscribePattern": self.pattern}


@dataclass(frozen=True)
class Archive:
    """What is at a path now.

    :param path: without a slash at its end.
    :param batches: those that are whole, by number.
    """

    path: str
    about: About
    batches: tuple[Batch, ...] = field(default=())

    @cached_property
    def spans(self) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset of each partition that is covered, and that behind the last."""
        spans: dict[TopicPartition, tuple[int, int]] = {}
        for batch in self.batches:
            for each in batch.ranges:
                partition = TopicPartition(each.topic, each.partition)
                start, end = spans.get(partition, (each.start, each.end))
                spans[partition] = min(start, each.start), max(end, each.end)
        return dict(sorted(spans.items()))

    @property
    def topics(self) -> list[str]:
        """Those of which something is there."""
        return sorted({each.topic for each in self.spans})

    @property
    def records(self) -> int:
        """In all batches."""
        return sum(batch.records for batch in self.batches)

    @property
    def size(self) -> int:
        """Of all files, in bytes."""
        return sum(batch.size for batch in self.batches)

    def files(self, topics: Collection[str] | None = None, batches: Iterable[Batch] | None = None) -> list[str]:
        """The paths of the files to read: of whole batches alone.

        :param topics: only theirs.
        :param batches: only theirs.
        """
        chosen = self.batches if batches is None else batches
        return [
            f"{self.path}/{each.path}"
            for batch in chosen
            for each in batch.files
            if topics is None or each.topic in topics
        ]


# --- where things are ---


def archive_file(path: str) -> str:
    """What is said of the archive."""
    return f"{path}/{NOTES}/archive.json"


def batch_folder(path: str) -> str:
    """Where whole batches are noted."""
    return f"{path}/{NOTES}/batches"


def batch_file(path: str, number: int) -> str:
    """The note of one."""
    return f"{batch_folder(path)}/{number}.json"


def schema_file(path: str) -> str:
    """The fields of JSON values."""
    return f"{path}/{NOTES}/schema.json"


def checkpoint(path: str) -> str:
    """Spark's."""
    return f"{path}/{NOTES}/checkpoint"


def lock_file(path: str) -> str:
    """Locked by the run that writes."""
    return f"{path}/{NOTES}/lock"


# --- reading ---


def read_archive(path: str, store: Store | None = None) -> Archive:
    """What is at a path.

    :param store: needed for a path with a scheme; see ``store_of``.
    :raise NoArchive: it is none, or was written by a newer release.
    """
    path = plain_path(path)
    store = store or LocalStore()
    about = read_about(path, store)
    if about is None:
        raise NoArchive(f"{path}: no archive is there ({NOTES}/archive.json is missing)")
    numbers = sorted(
        int(name.removesuffix(".json")) for name in store.names(batch_folder(path)) if re.fullmatch(r"\d+\.json", name)
    )
    batches = (read_batch(path, number, store) for number in numbers)
    return Archive(path, about, tuple(each for each in batches if each is not None))


def read_about(path: str, store: Store) -> About | None:
    """What is said of an archive; None where there is none.

    :raise NoArchive: what is there cannot be read.
    """
    rows = _read(store, archive_file(path))
    if rows is None:
        return None
    names = About.__dataclass_fields__.keys() & rows.keys()
    values: dict[str, Any] = {name: tuple(rows[name]) if name == "topics" else rows[name] for name in names}
    if "cluster_id" not in values:
        raise NoArchive(f"{archive_file(path)}: it does not say of which cluster it is")
    return About(**values)


def read_batch(path: str, number: int, store: Store) -> Batch | None:
    """A batch; None where it is not whole.

    :raise NoArchive: what is noted of it cannot be read.
    """
    rows = _read(store, batch_file(path, number))
    if rows is None:
        return None
    try:
        ranges = tuple(ArchivedRange(**each) for each in rows["ranges"])
        files = tuple(ArchivedFile(**each) for each in rows["files"])
        return Batch(rows["batch"], ranges, files, rows.get("written_ms", 0))
    except (KeyError, TypeError) as error:
        raise NoArchive(f"{batch_file(path, number)}: {error} is not what a batch has") from error


def _read(store: Store, path: str) -> dict[str, Any] | None:
    text = store.read(path)
    if text is None:
        return None
    try:
        rows = json.loads(text)
        version = rows["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise NoArchive(f"{path} is not what an archive has there: {error}") from error
    if version != FORMAT:
        raise NoArchive(f"{path} has format {version}, and this release reads {FORMAT}: a newer kreplica is needed")
    assert isinstance(rows, dict)
    return rows


# --- writing ---


def write_about(path: str, about: About, store: Store) -> None:
    """Say what an archive is."""
    store.write(archive_file(path), json.dumps({"format": FORMAT, **asdict(about)}, indent=1))


def write_batch(path: str, batch: Batch, store: Store) -> None:
    """Note that a batch is whole: the last thing that is done for it."""
    rows = {
        "format": FORMAT,
        "batch": batch.number,
        "ranges": [each._asdict() for each in batch.ranges],
        "files": [each._asdict() for each in batch.files],
        "written_ms": batch.written_ms,
    }
    store.write(batch_file(path, batch.number), json.dumps(rows, indent=1))


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""
