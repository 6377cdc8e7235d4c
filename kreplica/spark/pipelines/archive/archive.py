"""Archive of topics as Parquet files: a stream that writes each record once and resumes where it stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any

from kreplica.blocking import Cluster
from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.archive.file_stores import Store, plain_path, store_of
from kreplica.spark.pipelines.archive.layout import (
    NOTES,
    About,
    Batch,
    checkpoint,
    lock_file,
    read_about,
    read_archive,
    write_about,
)
from kreplica.spark.pipelines.archive.micro_batches import BatchWriter
from kreplica.spark.pipelines.archive.stream_checkpoint import batch_numbers
from kreplica.spark.pipelines.progress import Progress, Report, ignore_progress
from kreplica.spark.source.offset_lookup import OffsetLookup
from kreplica.spark.source.options import SourceOptions, Topics, source_options
from kreplica.transfer.offset_ranges import offset_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_RECORDS_MAX = 10_000_000
FILE_RECORDS_MAX = 2_000_000
FOLLOW_EVERY = "1 minute"

_LOOK_S = 0.2
_NO_PATH = "*?[]{}\\"


class ArchiveRefused(KreplicaError):
    """The archive cannot be written with these options; the message says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Options of an archive.

    :param bootstrap: bootstrap brokers.
    :param topics: topic names; alternatively ``pattern``, a Python regular expression.
    :param read_committed: omit records of open and aborted transactions.
    :param values: ``binary``, or ``json`` to also parse values into a column ``json``.
    :param codec: compression codec of the Parquet files.
    :param batch_records_max: maximum offsets per micro-batch; a crash repeats at most one micro-batch.
    :param file_records_max: maximum records per file.
    :param follow_every: run until stopped, with this trigger interval in Spark's notation; None: archive the current
        records and return.
    :param adopt: continue an archive of another cluster or of other topics, and record the new ones.
    :param allow_data_loss: skip records that the cluster deleted before they were archived.
    :param kafka: additional options of the source.
    """

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    read_committed: bool = True
    values: str = "binary"
    codec: str = "zstd"
    batch_records_max: int = BATCH_RECORDS_MAX
    file_records_max: int = FILE_RECORDS_MAX
    follow_every: str | None = None
    adopt: bool = False
    allow_data_loss: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict)

    def about(self, cluster_id: str | None) -> About:
        """Return the description that a new archive stores."""
        return About(
            cluster_id=cluster_id,
            topics=tuple(sorted(set(self.topics))),
            pattern=self.pattern,
            read_committed=self.read_committed,
            values=self.values,
            codec=self.codec,
            made_ms=int(time() * 1000),
        )

    def source(self) -> dict[str, str]:
        """Options of the stream's source.

        :raise ArchiveRefused: neither topics nor a pattern is given, or both are.
        """
        if bool(self.topics) == (self.pattern is not None):
            raise ArchiveRefused("give either topics or a pattern of topic names")
        return {
            "maxOffsetsPerTrigger": str(self.batch_records_max),
            **self.kafka,
            **self.about(None).selection(),
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.isolation.level": "read_committed" if self.read_committed else "read_uncommitted",
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "failOnDataLoss": "false" if self.allow_data_loss else "true",
        }


@dataclass(frozen=True, slots=True)
class TopicTotal:
    """Records of one topic that a run archived.

    :param lag: offsets that are not archived yet.
    """

    topic: str
    partitions: int
    records: int
    lag: int


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """Result of a run.

    :param batches: number of batches written; ``files`` and ``size_bytes`` also count this run only.
    :param first_batch: number of the first batch; None if there were no new records.
    :param is_resumed: True if the archive already existed.
    """

    path: str
    topics: tuple[TopicTotal, ...]
    records: int
    size_bytes: int
    batches: int
    files: int
    seconds: float
    lag: int
    first_batch: int | None
    is_resumed: bool


def archive(
    spark: SparkSession,
    path: str,
    options: ArchiveOptions,
    report: Report = ignore_progress,
    is_over: Callable[[], bool] = lambda: False,
) -> ArchiveReport:
    """Write topics to an archive, which is created or continued.

    :param is_over: polled; if it returns True, the run stops, and the next run repeats the incomplete batch.
    :raise ArchiveRefused: the archive belongs to another cluster or to other topics.
    :raise StoreFailed: another run writes to the archive.
    :raise ValueError: an option is wrong.
    """
    given = options.source()
    wanted = source_options(given, is_streaming=True)
    path = plain_path(path)
    store = store_of(path, spark)
    with closing(Cluster(wanted.bootstrap, options=wanted.settings.client)) as cluster:
        lookup = OffsetLookup(cluster, wanted)
        partitions = _partitions(lookup, wanted, may_come=options.follow_every is not None)
        about = options.about(cluster.refresh([]).cluster_id)
        _refuse_strange(path, store)
        with store.alone(lock_file(path)):
            is_resumed = _agreed(path, about, store, options.adopt)
            run = _Run(spark, path, store, options, lookup, report)
            run.expect(partitions)
            run.run(given, is_over)
        return run.report(lookup.latest(lookup.partitions()), is_resumed)


def _partitions(lookup: OffsetLookup, wanted: SourceOptions, *, may_come: bool) -> list[TopicPartition]:
    """Return the selected partitions that exist.

    :param may_come: allow that no topic matches the pattern yet.
    :raise ArchiveRefused: a named topic does not exist, or no topic matches.
    """
    partitions = lookup.partitions()
    if isinstance(wanted.selection, Topics):
        missing = sorted(set(wanted.selection.names) - {each.topic for each in partitions})
        if missing:
            raise ArchiveRefused(f"there is no topic {missing[0]!r}")
    elif not partitions and not may_come:
        raise ArchiveRefused("no topic matches the pattern")
    return partitions


def _refuse_strange(path: str, store: Store) -> None:
    """:raise ArchiveRefused: the directory contains other files, or the path has characters that Spark expands."""
    if any(sign in path for sign in _NO_PATH):
        raise ArchiveRefused(f"{path}: Spark expands the characters {_NO_PATH} in paths; choose another path")
    strange = [name for name in store.names(path) if name != NOTES]
    if strange and read_about(path, store) is None:
        raise ArchiveRefused(f"{path} contains other files ({strange[0]}): an archive needs its own directory")


def _agreed(path: str, about: About, store: Store, adopt: bool) -> bool:
    """Return True if an archive exists that these options can continue; otherwise create one.

    :raise ArchiveRefused: the archive has other options, or its checkpoint is missing.
    """
    there = read_about(path, store)
    if there is None:
        write_about(path, about, store)
        return False
    differing = [
        f"{name} {_shown(getattr(there, name))}, not {_shown(getattr(about, name))}"
        for name in ("cluster_id", "topics", "pattern", "read_committed", "values")
        if getattr(there, name) != getattr(about, name)
    ]
    if differing and not adopt:
        raise ArchiveRefused(
            f"{path} is an archive of {'; '.join(differing)}: choose another path, or use --adopt to continue it"
        )
    if differing:
        write_about(path, replace(about, made_ms=there.made_ms), store)  # replays identify the archive by it
    batches = read_archive(path, store).batches
    begun = batch_numbers(checkpoint(path), store)
    if batches and (not begun or begun[-1] < batches[-1].number):
        raise ArchiveRefused(
            f"{path}: {checkpoint(path)} does not know of batch {batches[-1].number}, which is there: bring it back,"
            " or begin another archive"
        )
    return True


def _shown(value: Any) -> str:
    return ",".join(value) or "no names" if isinstance(value, tuple) else str(value)


@dataclass(slots=True)
class _Totals:
    """Totals of the batches that a run wrote."""

    first: int | None = None
    batches: int = 0
    files: int = 0
    size_bytes: int = 0
    offsets: int = 0
    records: Counter[str] = field(default_factory=Counter)

    def add(self, batch: Batch) -> None:
        self.first = batch.number if self.first is None else self.first
        self.batches += 1
        self.files += len(batch.files)
        self.size_bytes += batch.size
        for each in batch.ranges:
            self.offsets += each.end - each.start
            self.records[each.topic] += each.records


class _Run:
    """One run of the stream."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        store: Store,
        options: ArchiveOptions,
        lookup: OffsetLookup,
        report: Report,
    ) -> None:
        self._spark = spark
        self._path = path
        self._store = store
        self._options = options
        self._lookup = lookup
        self._report = report
        self._totals = _Totals()
        self._ends: dict[TopicPartition, int] = {}
        self._total: int | None = None
        self._began_s = monotonic()

    def expect(self, partitions: list[TopicPartition]) -> None:
        """Determine how many offsets the run has to archive."""
        spans = read_archive(self._path, self._store).spans
        self._ends = {each: end for each, (_, end) in spans.items()}
        if self._options.follow_every is None:
            latest, earliest = self._lookup.latest(partitions), self._lookup.earliest(partitions)
            starts = {each: max(earliest[each], self._ends.get(each, 0)) for each in latest}
            self._total = offset_count(starts, latest)
        self._report_progress()

    def run(self, source: Mapping[str, str], is_over: Callable[[], bool]) -> None:
        """Run until all offsets are archived or ``is_over`` returns True."""
        query = self._started(source)
        try:
            while query.isActive:
                if is_over():
                    return
                sleep(_LOOK_S)
            query.awaitTermination()  # raises the error of a failed query
        except KeyboardInterrupt:
            if self._options.follow_every is None:
                raise  # otherwise it is an interrupt by the user
        finally:
            query.stop()

    def _started(self, source: Mapping[str, str]) -> StreamingQuery:
        options = self._options
        writer = BatchWriter(
            self._path,
            self._store,
            codec=options.codec,
            file_records_max=options.file_records_max,
            earliest=self._lookup.earliest,
            parsed=self._parsed,
            wrote=self._wrote,
        )
        tasks = {"minPartitions": str(self._spark.sparkContext.defaultParallelism), **source}
        rows = self._spark.readStream.format("kreplica").options(**tasks).load()
        stream = rows.writeStream.queryName(f"archive {self._path}").foreachBatch(writer)
        stream = stream.option("checkpointLocation", checkpoint(self._path))
        if options.follow_every is None:
            return stream.trigger(availableNow=True).start()
        return stream.trigger(processingTime=options.follow_every).start()

    def _parsed(self, rows: DataFrame, batch: int) -> DataFrame:
        if self._options.values != "json":
            return rows
        from kreplica.spark.pipelines.json_values import with_json

        return with_json(rows, self._path, batch, self._store)

    def _wrote(self, batch: Batch) -> None:
        self._totals.add(batch)
        self._ends.update(batch.ends())
        self._report_progress()

    def _report_progress(self) -> None:
        totals = self._totals
        self._report(Progress("archive", totals.offsets, self._total, totals.records.total(), totals.size_bytes))

    def report(self, latest: Mapping[TopicPartition, int], is_resumed: bool) -> ArchiveReport:
        """Return the result of the run, with the lag behind the cluster's latest offsets."""
        lags: Counter[str] = Counter()
        partitions: Counter[str] = Counter()
        for each, end in latest.items():
            lags[each.topic] += max(0, end - self._ends.get(each, 0))
            partitions[each.topic] += 1
        totals = self._totals
        return ArchiveReport(
            path=self._path,
            topics=tuple(
                TopicTotal(topic, partitions[topic], totals.records[topic], lags[topic])
                for topic in sorted(lags.keys() | totals.records.keys())
            ),
            records=totals.records.total(),
            size_bytes=totals.size_bytes,
            batches=totals.batches,
            files=totals.files,
            seconds=monotonic() - self._began_s,
            lag=lags.total(),
            first_batch=totals.first,
            is_resumed=is_resumed,
        )
