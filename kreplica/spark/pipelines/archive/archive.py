"""Archives topics as Parquet files: a stream that writes each record once and resumes where it stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any

from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.archive.file_stores import Store, normalize_path, store_of
from kreplica.spark.pipelines.archive.layout import (
    METADATA_DIRECTORY,
    ArchiveDescription,
    Batch,
    checkpoint,
    lock_file,
    read_archive,
    read_description,
    write_description,
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

_POLL_S = 0.2
_GLOB_CHARACTERS = "*?[]{}\\"


class ArchiveError(KreplicaError):
    """The archive cannot be written with these options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Options of an archive.

    :param bootstrap: bootstrap brokers.
    :param topics: topic names; alternatively ``pattern``, a Python regular expression.
    :param read_committed: omit records of open and aborted transactions.
    :param values: ``binary``, or ``json`` to also parse values into a column ``json``.
    :param codec: compression codec of the Parquet files.
    :param batch_records_max: maximum offsets per micro-batch; after a crash, at most one micro-batch is written again.
    :param file_records_max: maximum records per file.
    :param follow_every: run until stopped, with this trigger interval in Spark's notation; None: archive the current
        records and return.
    :param adopt: continue an archive that has another cluster or other options, and record the new ones.
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
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)

    def description(self, cluster_id: str | None) -> ArchiveDescription:
        """Return the description that a new archive stores."""
        return ArchiveDescription(
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

        :raise ArchiveError: neither topics nor a pattern is given, or both are.
        """
        if bool(self.topics) == (self.pattern is not None):
            raise ArchiveError("specify either topics or a pattern of topic names")
        return {
            "maxOffsetsPerTrigger": str(self.batch_records_max),
            **self.kafka,
            **self.description(None).selection(),
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.isolation.level": "read_committed" if self.read_committed else "read_uncommitted",
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "failOnDataLoss": "false" if self.allow_data_loss else "true",
        }


@dataclass(frozen=True, slots=True)
class TopicTotal:
    """Number of records of one topic that a run archived.

    :param lag: offsets that are not archived yet.
    """

    topic: str
    partitions: int
    records: int
    lag: int


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """Result of a run.

    :param batches: number of batches that this run wrote; ``files`` and ``size_bytes`` also count only this run.
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
    should_stop: Callable[[], bool] = lambda: False,
) -> ArchiveReport:
    """Write topics to an archive, which is created or continued.

    :param should_stop: polled; when it returns True, the run stops, and the next run writes the incomplete batch again.
    :raise ArchiveError: the archive has another cluster or other options, or the directory is not an archive.
    :raise StoreError: another run is writing to the archive.
    :raise ValueError: an option is invalid.
    """
    source_settings = options.source()
    parsed_options = source_options(source_settings, is_streaming=True)
    path = normalize_path(path)
    store = store_of(path, spark)
    settings = parsed_options.settings
    with closing(settings.security.open_cluster(parsed_options.bootstrap, settings.client)) as cluster:
        lookup = OffsetLookup(cluster, parsed_options)
        partitions = _partitions(lookup, parsed_options, may_be_empty=options.follow_every is not None)
        description = options.description(cluster.refresh([]).cluster_id)
        _check_directory(path, store)
        with store.exclusive_lock(lock_file(path)):
            is_resumed = _create_or_check(path, description, store, options.adopt)
            run = _Run(spark, path, store, options, lookup, report)
            run.expect(partitions)
            run.run(source_settings, should_stop)
        return run.report(lookup.latest(lookup.partitions()), is_resumed)


def _partitions(lookup: OffsetLookup, parsed_options: SourceOptions, *, may_be_empty: bool) -> list[TopicPartition]:
    """Return the selected partitions that exist.

    :param may_be_empty: do not fail if no topic matches the pattern yet.
    :raise ArchiveError: a named topic does not exist, or no topic matches.
    """
    partitions = lookup.partitions()
    if isinstance(parsed_options.selection, Topics):
        missing = sorted(set(parsed_options.selection.names) - {each.topic for each in partitions})
        if missing:
            raise ArchiveError(f"topic {missing[0]!r} does not exist")
    elif not partitions and not may_be_empty:
        raise ArchiveError("no topic matches the pattern")
    return partitions


def _check_directory(path: str, store: Store) -> None:
    """Check that a directory may hold an archive.

    :raise ArchiveError: it contains other files, or its path has characters that Spark expands.
    """
    if any(sign in path for sign in _GLOB_CHARACTERS):
        raise ArchiveError(f"{path}: Spark expands the characters {_GLOB_CHARACTERS} in paths; choose another path")
    other_files = [name for name in store.names(path) if name != METADATA_DIRECTORY]
    if other_files and read_description(path, store) is None:
        raise ArchiveError(f"{path} contains other files ({other_files[0]}): an archive needs its own directory")


def _create_or_check(path: str, description: ArchiveDescription, store: Store, adopt: bool) -> bool:
    """Return True if an archive exists that these options can continue; otherwise create one.

    :raise ArchiveError: the archive has other options, or its checkpoint is missing.
    """
    stored = read_description(path, store)
    if stored is None:
        write_description(path, description, store)
        return False
    differing = [
        f"{name} {_value_text(getattr(stored, name))}, not {_value_text(getattr(description, name))}"
        for name in ("cluster_id", "topics", "pattern", "read_committed", "values")
        if getattr(stored, name) != getattr(description, name)
    ]
    if differing and not adopt:
        raise ArchiveError(
            f"the archive at {path} has {'; '.join(differing)}: choose another path, or use --adopt to continue it"
        )
    if differing:
        # Keep the creation time, by which replays identify the archive.
        write_description(path, replace(description, made_ms=stored.made_ms), store)
    batches = read_archive(path, store).batches
    checkpointed = batch_numbers(checkpoint(path), store)
    if batches and (not checkpointed or checkpointed[-1] < batches[-1].number):
        raise ArchiveError(
            f"{checkpoint(path)} does not contain batch {batches[-1].number} of the archive: restore the checkpoint,"
            " or write to another path"
        )
    return True


def _value_text(value: Any) -> str:
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
        self._started_s = monotonic()

    def expect(self, partitions: list[TopicPartition]) -> None:
        """Compute the number of offsets that the run must archive."""
        spans = read_archive(self._path, self._store).spans
        self._ends = {each: end for each, (_, end) in spans.items()}
        if self._options.follow_every is None:
            latest, earliest = self._lookup.latest(partitions), self._lookup.earliest(partitions)
            starts = {each: max(earliest[each], self._ends.get(each, 0)) for each in latest}
            self._total = offset_count(starts, latest)
        self._report_progress()

    def run(self, source: Mapping[str, str], should_stop: Callable[[], bool]) -> None:
        """Run until all offsets are archived or ``should_stop`` returns True."""
        query = self._start(source)
        try:
            while query.isActive:
                if should_stop():
                    return
                sleep(_POLL_S)
            query.awaitTermination()  # raises the error of a failed query
        except KeyboardInterrupt:
            if self._options.follow_every is None:
                raise  # a run with follow_every is stopped by an interrupt
        finally:
            query.stop()

    def _start(self, source: Mapping[str, str]) -> StreamingQuery:
        options = self._options
        writer = BatchWriter(
            self._path,
            self._store,
            codec=options.codec,
            file_records_max=options.file_records_max,
            earliest=self._lookup.earliest,
            add_columns=self._add_columns,
            on_batch=self._add_batch,
        )
        tasks = {"minPartitions": str(self._spark.sparkContext.defaultParallelism), **source}
        rows = self._spark.readStream.format("kreplica").options(**tasks).load()
        stream = rows.writeStream.queryName(f"archive {self._path}").foreachBatch(writer)
        stream = stream.option("checkpointLocation", checkpoint(self._path))
        if options.follow_every is None:
            return stream.trigger(availableNow=True).start()
        return stream.trigger(processingTime=options.follow_every).start()

    def _add_columns(self, rows: DataFrame, batch: int) -> DataFrame:
        if self._options.values != "json":
            return rows
        from kreplica.spark.pipelines.json_values import add_json_column

        return add_json_column(rows, self._path, batch, self._store)

    def _add_batch(self, batch: Batch) -> None:
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
            seconds=monotonic() - self._started_s,
            lag=lags.total(),
            first_batch=totals.first,
            is_resumed=is_resumed,
        )
