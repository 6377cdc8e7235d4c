"""Comparison of an archive with its topics, or with topics to which it was replayed: missing, duplicate and different
records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from kreplica.blocking.admin import topic_settings
from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.archive.file_stores import Store, normalize_path, store_of
from kreplica.spark.pipelines.archive.layout import Archive, read_archive
from kreplica.spark.pipelines.archive.reading import read_rows
from kreplica.spark.pipelines.compare.findings import Bounds, Difference, PartitionResult, TopicResult
from kreplica.spark.pipelines.progress import Progress, Report, ignore_progress
from kreplica.spark.source.offset_lookup import OffsetLookup
from kreplica.spark.source.options import source_options
from kreplica.spark.source.positions import as_json
from kreplica.transfer.offset_ranges import offset_count
from kreplica.transfer.topics import keeps_timestamps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN_MAX = 100

_COLUMNS = "key,value,partition,offset,timestamp,headers"


class CompareError(KreplicaError):
    """The comparison is not possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """Options of a comparison.

    :param bootstrap: bootstrap brokers.
    :param topics: topics of the archive; empty: all.
    :param others: topics to which topics of the archive were replayed, by the name in the archive; a topic that is not
        listed is compared with the topic of the same name.
    :param shown_max: maximum number of differences listed.
    :param kafka: additional options of the source.
    """

    bootstrap: str
    topics: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    shown_max: int = SHOWN_MAX
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class CompareReport:
    """Result of a comparison.

    :param differences: the first differences; ``difference_count`` counts all.
    :param deleted: records not compared because retention or compaction deleted them from the topics.
    :param lag: number of offsets after the end of the archive, which are not differences.
    :param lost_files: missing files of the archive; their records are counted as missing.
    """

    path: str
    partitions: tuple[PartitionResult, ...]
    differences: tuple[Difference, ...]
    difference_count: int
    records: int
    deleted: int
    lag: int
    lost_files: tuple[str, ...]
    seconds: float

    @property
    def is_equal(self) -> bool:
        """True if there are no differences."""
        return not self.difference_count and not self.lost_files


def compare(spark: SparkSession, path: str, options: CompareOptions, report: Report = ignore_progress) -> CompareReport:
    """Compare an archive with topics.

    With its own topics, records correspond by offset and the archive is the copy. With other topics, records correspond
    by content and order and the topics are the copy.

    :raise NoArchive: there is no archive.
    :raise CompareError: a topic is not in the archive or not in the cluster.
    """
    started_s = monotonic()
    path = normalize_path(path)
    store = store_of(path, spark)
    archive = read_archive(path, store)
    topics = _topics(archive, options)
    archive, lost = _without_lost_files(archive, topics, store)
    if lost and any(topic in options.others for topic in topics):
        raise CompareError(f"{path}: {len(lost)} files are missing ({lost[0]}, ...): cannot compare")
    total = _records(archive, topics)
    results: list[PartitionResult] = []
    differences: list[Difference] = []
    lag = done = 0
    report(Progress("compare", 0, total))
    for topic in topics:
        with closing(_TopicComparison(spark, archive, topic, options)) as comparison:
            found = comparison.run(options.shown_max - len(differences))
            lag += comparison.lag
        results += found.partitions
        differences += found.differences
        done += _records(archive, [topic])
        report(Progress("compare", done, total, done))
    return CompareReport(
        path=path,
        partitions=tuple(results),
        differences=tuple(differences),
        difference_count=sum(each.difference_count for each in results),
        records=sum(each.records for each in results),
        deleted=sum(each.deleted for each in results),
        lag=lag,
        lost_files=tuple(lost),
        seconds=monotonic() - started_s,
    )


def _topics(archive: Archive, options: CompareOptions) -> list[str]:
    """Return the archive's topics to compare, sorted.

    :raise CompareError: a topic is not in the archive.
    """
    topics = sorted(options.topics or archive.topics)
    unknown = sorted({*topics, *options.others} - set(archive.topics))
    if unknown:
        raise CompareError(
            f"{archive.path} has no topic {unknown[0]!r}; it has {', '.join(archive.topics) or 'none'}"
        )
    return topics


def _records(archive: Archive, topics: list[str]) -> int:
    return sum(each.records for batch in archive.batches for each in batch.ranges if each.topic in topics)


def _without_lost_files(archive: Archive, topics: list[str], store: Store) -> tuple[Archive, list[str]]:
    """Return the archive restricted to its existing files, and the paths of the missing ones."""
    existing: set[str] = set()
    for topic in topics:
        found = store.find(archive.path, f"topic={topic}/day=*/batch=*/*.parquet")
        existing.update(each.path[each.path.rindex("topic=") :] for each in found)
    lost = [
        each.path
        for batch in archive.batches
        for each in batch.files
        if each.topic in topics and each.path not in existing
    ]
    if lost:
        batches = (
            replace(batch, files=tuple(each for each in batch.files if each.path in existing))
            for batch in archive.batches
        )
        archive = Archive(archive.path, archive.description, tuple(batches))
    return archive, lost


class _TopicComparison:
    """Comparison of a topic in the archive with a topic in the cluster.

    :ivar lag: number of offsets after the end of the archive.
    """

    def __init__(self, spark: SparkSession, archive: Archive, topic: str, options: CompareOptions) -> None:
        self._spark = spark
        self._archive = archive
        self._topic = topic
        self._other = options.others.get(topic, topic)
        self._is_replayed = topic in options.others
        isolation = "read_committed" if archive.description.read_committed else "read_uncommitted"
        self._source = {
            "kafka.isolation.level": isolation,
            **options.kafka,
            "kafka.bootstrap.servers": options.bootstrap,
        }
        parsed_options = source_options({**self._source, "subscribe": self._other}, is_streaming=False)
        settings = parsed_options.settings
        self._cluster = settings.security.open_cluster(parsed_options.bootstrap, settings.client)
        self._lookup = OffsetLookup(self._cluster, parsed_options)
        self.lag = 0

    def close(self) -> None:
        """Close the connections to the cluster."""
        self._cluster.close()

    def run(self, shown_max: int) -> TopicResult:
        """Run the comparison.

        :raise CompareError: the topic does not exist.
        """
        partitions = self._lookup.partitions()
        if not partitions:
            raise CompareError(f"topic {self._other!r} does not exist")
        earliest, latest = self._lookup.earliest(partitions), self._lookup.latest(partitions)
        settings = topic_settings(self._cluster, self._other)
        if self._is_replayed:
            return self._by_order(earliest, latest, shown_max, with_timestamps=keeps_timestamps(settings))
        policy = settings.get("cleanup.policy")
        is_compacted = policy is not None and "compact" in (policy.value or "")
        return self._by_offset(earliest, latest, shown_max, is_compacted=is_compacted)

    def _by_offset(
        self,
        earliest: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
        shown_max: int,
        *,
        is_compacted: bool,
    ) -> TopicResult:
        from kreplica.spark.pipelines.compare.by_offset import compare_offsets
        from kreplica.spark.pipelines.compare.rows import digests

        bounds = {}
        for each, (start, end) in self._archive.spans.items():
            if each.topic == self._topic:
                first = max(start, earliest.get(each, 0))
                bounds[each.partition] = Bounds(first, max(first, min(end, latest.get(each, 0))))
        archived_ends = {each: self._archive.spans.get(each, (0, earliest[each]))[1] for each in latest}
        self.lag = offset_count(archived_ends, latest)
        archived = digests(read_rows(self._spark, self._archive, [self._topic]), with_timestamps=True)
        read_topic = partial(self._topic_digests, with_timestamps=True)
        return compare_offsets(
            self._topic, archived, read_topic, bounds, is_compacted=is_compacted, shown_max=shown_max
        )

    def _by_order(
        self,
        earliest: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
        shown_max: int,
        *,
        with_timestamps: bool,
    ) -> TopicResult:
        from kreplica.spark.pipelines.compare.by_order import Names, compare_order
        from kreplica.spark.pipelines.compare.rows import digests

        bounds = {each.partition: Bounds(earliest[each], end) for each, end in latest.items()}
        archived = digests(read_rows(self._spark, self._archive, [self._topic]), with_timestamps=with_timestamps)
        read = self._topic_digests(bounds, with_timestamps=with_timestamps)
        shortened = [each.partition for each, start in earliest.items() if start > 0]
        records = _records(self._archive, [self._topic])
        names = Names(self._topic, self._other)
        return compare_order(names, archived, read, shortened, records=records, shown_max=shown_max)

    def _topic_digests(self, bounds: Mapping[int, Bounds], *, with_timestamps: bool) -> DataFrame:
        from kreplica.spark.pipelines.compare.rows import digests

        non_empty = {partition: each for partition, each in bounds.items() if each.start < each.end}
        if not non_empty:
            return self._spark.createDataFrame([], "partition int, offset long, digest long")
        options = {
            **self._source,
            "assign": json.dumps({self._other: sorted(non_empty)}),
            "startingOffsets": self._offsets({partition: each.start for partition, each in non_empty.items()}),
            "endingOffsets": self._offsets({partition: each.end for partition, each in non_empty.items()}),
            "kreplica.columns": _COLUMNS,
            "minPartitions": str(self._spark.sparkContext.defaultParallelism),
        }
        rows = self._spark.read.format("kreplica").options(**options).load()
        return digests(rows, with_timestamps=with_timestamps)

    def _offsets(self, offsets: Mapping[int, int]) -> str:
        return json.dumps(as_json({TopicPartition(self._other, each): offset for each, offset in offsets.items()}))
