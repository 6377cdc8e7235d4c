"""Directory layout of an archive of topics; independent of Spark.

::

    <archive>/topic=orders/day=2026-11-22/batch=7/part-....parquet    the records
    <archive>/_archive/archive.json       cluster, topics and options
    <archive>/_archive/batches/7.json     content of batch 7; written last, so a batch without it does not exist
    <archive>/_archive/schema.json        fields of JSON values so far
    <archive>/_archive/checkpoint/        checkpoint of the Spark stream that writes

Spark ignores names that start with an underscore, so the whole directory can be read as one table.
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
from kreplica.spark.pipelines.archive.file_stores import LocalStore, Store, normalize_path

FORMAT = 1
METADATA_DIRECTORY = "_archive"
VALUES = ("binary", "json")

COLUMNS = ("key", "value", "partition", "offset", "timestamp", "timestampType", "headers")
"""Columns in the files. ``topic``, ``day`` and ``batch`` are in the paths; ``json`` exists if values are JSON."""

_DAY = re.compile(r"/day=([^/]*)/")
_TOPIC = re.compile(r"^topic=([^/]*)/")


class NoArchive(KreplicaError):
    """There is no archive at the path, or it cannot be read."""


class ArchivedRange(NamedTuple):
    """Offsets of a partition in one batch.

    :param start: first offset covered; ``end`` is exclusive.
    :param records: number of records; fewer than offsets after compaction, and in transactional topics.
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int


class ArchivedFile(NamedTuple):
    """A Parquet file.

    :param path: relative to the archive.
    :param size: bytes.
    """

    path: str
    size: int

    @property
    def topic(self) -> str:
        """Topic of the records."""
        return _first_group(_TOPIC, self.path)

    @property
    def day(self) -> str:
        """Day of the records' timestamps, in UTC: ``2026-11-22``."""
        return _first_group(_DAY, self.path)


@dataclass(frozen=True, slots=True)
class Batch:
    """A complete batch.

    :param written_ms: time of writing, in milliseconds since 1970.
    """

    number: int
    ranges: tuple[ArchivedRange, ...]
    files: tuple[ArchivedFile, ...]
    written_ms: int = 0

    @property
    def records(self) -> int:
        """Number of records of all partitions."""
        return sum(each.records for each in self.ranges)

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(each.size for each in self.files)

    def ends(self) -> dict[TopicPartition, int]:
        """End offset of each partition, exclusive."""
        return {TopicPartition(each.topic, each.partition): each.end for each in self.ranges}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveDescription:
    """Cluster, topics and options of an archive, as stored in ``archive.json``.

    :param topics: names; empty if there is a ``pattern``.
    :param read_committed: True if records of open and aborted transactions are omitted.
    :param values: ``binary``; or ``json``, if values are also parsed into a column ``json``.
    """

    cluster_id: str | None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    read_committed: bool = True
    values: str = "binary"
    codec: str = "zstd"
    made_ms: int = 0

    def selection(self) -> dict[str, str]:
        """The selected topics as an option of the source."""
        return {"subscribe": ",".join(self.topics)} if self.pattern is None else {"subscribePattern": self.pattern}


@dataclass(frozen=True)
class Archive:
    """State of the archive at a path.

    :param path: without a trailing slash.
    :param batches: complete batches, by number.
    """

    path: str
    description: ArchiveDescription
    batches: tuple[Batch, ...] = field(default=())

    @cached_property
    def spans(self) -> dict[TopicPartition, tuple[int, int]]:
        """First offset and end offset (exclusive) of each partition."""
        spans: dict[TopicPartition, tuple[int, int]] = {}
        for batch in self.batches:
            for each in batch.ranges:
                partition = TopicPartition(each.topic, each.partition)
                start, end = spans.get(partition, (each.start, each.end))
                spans[partition] = min(start, each.start), max(end, each.end)
        return dict(sorted(spans.items()))

    @property
    def topics(self) -> list[str]:
        """Topics with at least one batch."""
        return sorted({each.topic for each in self.spans})

    @property
    def records(self) -> int:
        """Number of records of all batches."""
        return sum(batch.records for batch in self.batches)

    @property
    def size(self) -> int:
        """Size of all files in bytes."""
        return sum(batch.size for batch in self.batches)

    def files(self, topics: Collection[str] | None = None, batches: Iterable[Batch] | None = None) -> list[str]:
        """Return the paths of the files of complete batches.

        :param topics: only these topics.
        :param batches: only these batches.
        """
        chosen = self.batches if batches is None else batches
        return [
            f"{self.path}/{each.path}"
            for batch in chosen
            for each in batch.files
            if topics is None or each.topic in topics
        ]


# --- paths ---


def archive_file(path: str) -> str:
    """Path of the archive's description."""
    return f"{path}/{METADATA_DIRECTORY}/archive.json"


def batch_folder(path: str) -> str:
    """Directory of the batch entries."""
    return f"{path}/{METADATA_DIRECTORY}/batches"


def batch_file(path: str, number: int) -> str:
    """Path of the entry of one batch."""
    return f"{batch_folder(path)}/{number}.json"


def schema_file(path: str) -> str:
    """Path of the schema of JSON values."""
    return f"{path}/{METADATA_DIRECTORY}/schema.json"


def checkpoint(path: str) -> str:
    """Path of Spark's checkpoint."""
    return f"{path}/{METADATA_DIRECTORY}/checkpoint"


def lock_file(path: str) -> str:
    """Path of the lock file that the writing run holds."""
    return f"{path}/{METADATA_DIRECTORY}/lock"


# --- reading ---


def read_archive(path: str, store: Store | None = None) -> Archive:
    """Read the archive at a path.

    :param store: required for a path with a scheme; see ``store_of``.
    :raise NoArchive: there is no archive, or a newer release wrote it.
    """
    path = normalize_path(path)
    store = store or LocalStore()
    description = read_description(path, store)
    if description is None:
        raise NoArchive(f"{path} is not an archive ({METADATA_DIRECTORY}/archive.json is missing)")
    numbers = sorted(
        int(name.removesuffix(".json")) for name in store.names(batch_folder(path)) if re.fullmatch(r"\d+\.json", name)
    )
    batches = (read_batch(path, number, store) for number in numbers)
    return Archive(path, description, tuple(each for each in batches if each is not None))


def read_description(path: str, store: Store) -> ArchiveDescription | None:
    """Read the description of an archive; None if there is none.

    :raise NoArchive: the description cannot be parsed.
    """
    document = _read_document(store, archive_file(path))
    if document is None:
        return None
    names = ArchiveDescription.__dataclass_fields__.keys() & document.keys()
    values: dict[str, Any] = {name: tuple(document[name]) if name == "topics" else document[name] for name in names}
    if "cluster_id" not in values:
        raise NoArchive(f"{archive_file(path)}: the cluster ID is missing")
    return ArchiveDescription(**values)


def read_batch(path: str, number: int, store: Store) -> Batch | None:
    """Read the entry of a batch; None if the batch is not complete.

    :raise NoArchive: the entry cannot be parsed.
    """
    document = _read_document(store, batch_file(path, number))
    if document is None:
        return None
    try:
        ranges = tuple(ArchivedRange(**each) for each in document["ranges"])
        files = tuple(ArchivedFile(**each) for each in document["files"])
        return Batch(document["batch"], ranges, files, document.get("written_ms", 0))
    except (KeyError, TypeError) as error:
        raise NoArchive(f"{batch_file(path, number)}: not the entry of a batch: {error}") from error


def _read_document(store: Store, path: str) -> dict[str, Any] | None:
    text = store.read(path)
    if text is None:
        return None
    try:
        document = json.loads(text)
        version = document["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise NoArchive(f"{path} is not a metadata file of an archive: {error}") from error
    if version != FORMAT:
        raise NoArchive(f"{path} has format {version}, but this release reads only {FORMAT}: install a newer release")
    assert isinstance(document, dict)
    return document


# --- writing ---


def write_description(path: str, description: ArchiveDescription, store: Store) -> None:
    """Write the description of an archive."""
    store.write(archive_file(path), json.dumps({"format": FORMAT, **asdict(description)}, indent=1))


def write_batch(path: str, batch: Batch, store: Store) -> None:
    """Write the entry of a batch, which makes the batch complete; must be the last write of the batch."""
    document = {
        "format": FORMAT,
        "batch": batch.number,
        "ranges": [each._asdict() for each in batch.ranges],
        "files": [each._asdict() for each in batch.files],
        "written_ms": batch.written_ms,
    }
    store.write(batch_file(path, batch.number), json.dumps(document, indent=1))


def _first_group(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""
