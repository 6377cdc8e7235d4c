"""The data pipeline on Spark: three broker processes, real data with five codecs, and all steps of the pipeline.

Reads run on ``local[2]`` into a sink that discards everything, once from one broker's segment files and once through
the brokers, which share the same cores; if there is other load on the machine, CPU times are more reliable.  Then
topics are archived to Parquet and replayed to other topics, the archive is compared with both record by record, and all
replicas are audited.  The time of a micro-batch is Spark's ``triggerExecution``.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from benchmarks.spark_data import CODECS, PARTITIONS, digests, write
from kreplica.blocking import Cluster, Producer
from kreplica.spark.pipelines.archive.archive import ArchiveOptions, archive
from kreplica.spark.pipelines.audit.audit import AuditOptions, audit
from kreplica.spark.pipelines.compare.compare import CompareOptions, compare
from kreplica.spark.pipelines.replay.plan import ReplayOptions
from kreplica.spark.pipelines.replay.replay import replay
from kreplica.spark.session import spark_session
from tests.support.coordinator import CoordinatorProcess
from tests.support.process_cluster import ProcessCluster, direct_places, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

SCRATCH = Path(__file__).parent / "results"
SETTINGS = {
    "zookeeper.session.timeout.ms": 18_000,
    "replica.lag.time.max.ms": 30_000,
    "replica.high.watermark.checkpoint.interval.ms": 500,
    "transaction.two.phase.commit.enable": "true",
}
RECORDS = {"quick": {100: 250_000, 1000: 50_000}, "full": {100: 5_000_000, 1000: 1_000_000}}
"""Numbers of records, by scale and record size in bytes."""

ROUNDS = 3
READ_RATE_MIN = {100: 1_700_000, 1000: 500_000}
BROKER_TO_FILE_RATE_MIN = 0.7
MICRO_BATCH_MS_MAX = 250
AUDIT_RATE_MIN = 0.4e9
KEY_SIZE = 16
MICRO_BATCHES = 40
MICRO_BATCH_ROWS = 10


class Spent(NamedTuple):
    """Time spent on some work; CPU time includes this process, Spark's and the brokers'."""

    seconds: float
    cpu_s: float


@dataclass
class Bench:
    """One cluster, one Spark session, and the rows so far."""

    spark: SparkSession
    cluster: ProcessCluster
    records: dict[int, int]
    directory: Path
    rows: list[dict[str, Any]]

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers for any client."""
        return self.cluster.bootstrap_servers

    def add(
        self, what: str, figure: float, unit: str, target: float | None = None, *, spent: Spent | None = None,
        at_most: bool = False,
    ) -> None:  # fmt: skip
        """Add a measured value, and whether it meets its target."""
        is_met = None if target is None else figure <= target if at_most else figure >= target
        target_text = None if target is None else f"{'<=' if at_most else '>='} {target:,g} {unit}"
        row = {
            "what": what,
            "figure": figure,
            "unit": unit,
            "target": target_text,
            "met": is_met,
            "seconds": spent and spent.seconds,
            "CPU s": spent and spent.cpu_s,
            "load": os.getloadavg()[0],
        }
        self.rows.append(row)
        print(row, file=sys.stderr, flush=True)


def run(scale: str = "quick", rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Start a cluster and a Spark session, and measure all steps of the pipeline."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix="spark-", dir=SCRATCH, ignore_cleanup_errors=True) as name,
        CoordinatorProcess(Path(name, "coordinator")) as coordinator,
        ProcessCluster(Path(name), direct_places(coordinator.address), settings=SETTINGS) as cluster,
        _session(Path(name)) as spark,
    ):
        bench = Bench(spark, cluster, RECORDS[scale], Path(name), [])
        _write(bench)
        _read(bench, rounds)
        _pipelines(bench)
        _micro_batches(bench)
        return bench.rows


@contextmanager
def _session(directory: Path) -> Iterator[SparkSession]:
    folder = str(directory / "spark")
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": folder,
    }
    spark = spark_session("kreplica-benchmark", master="local[2]", settings=settings)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _topic(size: int) -> str:
    return f"records-{size}"


# --- writing and reading ---


def _write(bench: Bench) -> None:
    for size, count in bench.records.items():
        bench.cluster.create_topic(_topic(size), PARTITIONS)
        spent = _timed(partial(write, bench.bootstrap, _topic(size), count, size))
        bench.add(
            f"write {count:,} x {size} B, {len(CODECS)} codecs, RF 3",
            count / spent.seconds,
            "records/s",
            spent=spent,
        )


def _read(bench: Bench, rounds: int) -> None:
    log_dirs = ",".join(map(str, bench.cluster.brokers[1].log_directories))
    sources = {
        "segment files": {"kreplica.source": "segments", "kreplica.log.dirs": log_dirs},
        "brokers": {"kafka.bootstrap.servers": bench.bootstrap},
    }
    for size, count in bench.records.items():
        for name, partitions in (("no codec", [0, len(CODECS)]), ("5 codecs", list(range(PARTITIONS)))):
            from_files = 0.0
            for source, options in sources.items():
                read = _repeated_read(bench, options, size, partitions)
                _wait_for(read, count)
                spent = min(_timed(partial(_drain, read())) for _ in range(rounds))
                target = READ_RATE_MIN[size] if source == "segment files" else BROKER_TO_FILE_RATE_MIN * from_files
                rate = count / spent.seconds
                from_files = from_files or rate
                what = f"read {count:,} x {size} B, {name}, from {source}"
                bench.add(what, rate, "rows/s", target, spent=spent)


def _wait_for(read: Callable[[], DataFrame], count: int) -> None:
    """Wait for the high watermark checkpoints, which brokers write at intervals."""
    wait_until(lambda: read().count() == count, f"{count} records", 60.0)


def _repeated_read(bench: Bench, options: dict[str, str], size: int, partitions: list[int]) -> Callable[[], DataFrame]:
    """Return a function that reads some partitions repeatedly, so that it reads as much as all partitions contain."""
    numbers = ",".join(map(str, partitions))
    assign = f'{{"{_topic(size)}": [{numbers}]}}'

    def read() -> DataFrame:
        union = None
        for _ in range(PARTITIONS // len(partitions)):
            frame = bench.spark.read.format("kreplica").options(**options).option("assign", assign).load()
            union = frame if union is None else union.unionAll(frame)
        assert union is not None
        return union

    return read


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _timed(work: Callable[[], object]) -> Spent:
    cpu_s, started_s = _cpu_s(), time.monotonic()
    work()
    return Spent(time.monotonic() - started_s, _cpu_s() - cpu_s)


def _cpu_s() -> float:
    """Return the CPU time of this process and all its descendants, including those that have ended."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process has just ended
        stats[int(path.parent.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    own = {os.getpid()}
    while found := {pid for pid, (parent, _) in stats.items() if parent in own} - own:
        own |= found
    return sum(stats[pid][1] for pid in own) / os.sysconf("SC_CLK_TCK")


# --- micro-batches ---


def _micro_batches(bench: Bench) -> None:
    bench.cluster.create_topic("few", 1)
    with Cluster(bench.bootstrap) as cluster, Producer(cluster) as producer:
        for number in range(MICRO_BATCHES * MICRO_BATCH_ROWS):
            producer.send("few", b"%d" % number, partition=0)
    sinks = {
        "noop": {},
        "the exactly-once sink, many lanes": {"kreplica.exactly.once": "many"},
        "the exactly-once sink, one lane": {"kreplica.exactly.once": "one"},
    }
    for number, (name, options) in enumerate(sinks.items()):
        target = f"few-{number}"
        bench.cluster.create_topic(target, 1)
        trigger_times_ms = _trigger_times_ms(bench, target, options)
        what = f"micro-batch of {MICRO_BATCH_ROWS} rows to {name}, p50 of {len(trigger_times_ms)}"
        bench.add(what, statistics.median(trigger_times_ms), "ms", MICRO_BATCH_MS_MAX, at_most=True)


def _trigger_times_ms(bench: Bench, target: str, options: dict[str, str]) -> list[float]:
    reader = bench.spark.readStream.format("kreplica").option("kafka.bootstrap.servers", bench.bootstrap)
    reader = reader.option("subscribe", "few").option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", str(MICRO_BATCH_ROWS)).load().select("key", "value")
    writer = frame.writeStream.option("checkpointLocation", str(bench.directory / f"checkpoint-{target}"))
    if options:
        options = {**options, "kafka.bootstrap.servers": bench.bootstrap, "topic": target}
        writer = writer.format("kreplica").options(**options)
    else:
        writer = writer.format("noop")
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        full_batches = [each for each in query.recentProgress if each["numInputRows"] == MICRO_BATCH_ROWS]
    finally:
        query.stop()
    return [each["durationMs"]["triggerExecution"] for each in full_batches[MICRO_BATCHES // 4 :]]


# --- archive and replay ---


def _pipelines(bench: Bench) -> None:
    """Archive a topic to Parquet, replay it and audit it; the contents must be equal."""
    path = str(bench.directory / "archive")
    topics = tuple(map(_topic, bench.records))
    count = sum(bench.records.values())
    size = sum(each * (size + KEY_SIZE) for size, each in bench.records.items())
    before = {topic: digests(bench.bootstrap, topic) for topic in topics}
    archived, spent = _result_and_time(
        partial(archive, bench.spark, path, ArchiveOptions(bootstrap=bench.bootstrap, topics=topics))
    )
    _check(archived.records == count, f"{archived.records} of {count} records are archived")
    _add_rates(bench, "archive to Parquet", count, size, spent)
    others = {topic: f"{topic}-again" for topic in topics}
    options = {"kafka.compression.type": "lz4"}
    replay_options = ReplayOptions(
        bootstrap=bench.bootstrap, renamed=others, create=True, replication_factor=3, options=options
    )
    replayed, spent = _result_and_time(partial(replay, bench.spark, path, replay_options))
    _check(replayed.records == count, f"{replayed.records} of {count} records are replayed")
    _add_rates(bench, f"replay to topics, exactly once, {replayed.steps} steps", count, size, spent)
    again = {topic: digests(bench.bootstrap, f"{topic}-again") for topic in topics}
    same = sum(again[topic][each] == found for topic in topics for each, found in before[topic].items())
    bench.add("partitions whose replayed records are the same", same, "partitions", len(topics) * PARTITIONS)
    no_renames: dict[str, str] = {}
    for what, renamed in (("its topics", no_renames), ("the topics it was replayed to", others)):
        chosen = CompareOptions(bootstrap=bench.bootstrap, topics=topics, others=renamed)
        compared, spent = _result_and_time(partial(compare, bench.spark, path, chosen))
        _add_rates(bench, f"compare the archive with {what}", count, size, spent)
        bench.add(f"differences between the archive and {what}", compared.difference_count, "", 0, at_most=True)
    _audit(bench)


def _audit(bench: Bench) -> None:
    directories = tuple(str(each) for broker in bench.cluster.brokers.values() for each in broker.log_directories)
    options = AuditOptions(log_dirs=directories, bootstrap=bench.bootstrap)
    report, spent = _result_and_time(partial(audit, bench.spark, options))
    what = f"audit of {report.compared} partitions, {report.size_bytes:,} B"
    bench.add(what, report.size_bytes / spent.seconds / 1e9, "GB/s", AUDIT_RATE_MIN / 1e9, spent=spent)
    bench.add("differences between replicas", report.difference_count, "", 0, at_most=True)


def _result_and_time(work: Callable[[], T]) -> tuple[T, Spent]:
    """Call a function; return its result, and the time that it took."""
    results: list[T] = []
    spent = _timed(lambda: results.append(work()))
    return results[0], spent


def _add_rates(bench: Bench, what: str, count: int, size: int, spent: Spent) -> None:
    what = f"{what}, {size / spent.seconds / 1e6:,.0f} MB/s"
    bench.add(what, count / spent.seconds, "records/s", spent=spent)


def _check(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)
