"""Replays Parquet files to topics: each record once, in order within its partition, with its timestamp and headers.

The source is divided into steps (``steps``). Each step is a batch of the exactly-once sink, numbered by its end
position, so the target cluster stores the progress. A restarted run resumes from it; of two concurrent runs, one fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from kreplica.blocking import Cluster
from kreplica.spark.pipelines.progress import Progress, Report, ignore_progress
from kreplica.spark.pipelines.replay.plan import Plan, ReplayOptions, Target, find_source, make_plan, sequence_of
from kreplica.spark.pipelines.replay.sources import LANE, FileSource
from kreplica.spark.pipelines.replay.steps import Step
from kreplica.transfer.topics import create_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kreplica.spark.sink.batch_sequence import BatchSequence


@dataclass(frozen=True)
class ReplayReport:
    """Result of a run.

    :param steps: number of steps written.
    :param records: number of records written; ``value_bytes`` counts their keys and values.
    :param offsets: offsets covered by all runs of this replay.
    """

    name: str
    targets: tuple[Target, ...]
    notes: tuple[str, ...]
    steps: int
    records: int
    value_bytes: int
    offsets: int
    seconds: float


def plan_replay(spark: SparkSession, path: str, options: ReplayOptions) -> Plan:
    """Return the plan of a replay, without changing anything.

    :raise KreplicaError: the replay is not possible; the message says why.
    """
    source = find_source(spark, path)
    with _cluster(options) as cluster:
        return make_plan(cluster, source, options)


def replay(spark: SparkSession, path: str, options: ReplayOptions, report: Report = ignore_progress) -> ReplayReport:
    """Write the records at a path to topics, resuming after an earlier run.

    :raise KreplicaError: the replay is not possible, or failed. The next run does not write the same records again.
    """
    started_s = monotonic()
    source = find_source(spark, path)
    with _cluster(options) as cluster:
        plan = make_plan(cluster, source, options)
        has_created = _create_missing_topics(cluster, plan)
        sequence = sequence_of(cluster, plan.name, plan.description)
        decided = sequence.begin()
        if has_created or decided != plan.last_position:
            plan = make_plan(cluster, source, options)
        return _Run(spark, plan, sequence, report, started_s).run(decided)


def _cluster(options: ReplayOptions) -> Cluster:
    from kreplica.spark.sink.options import sink_options

    sink_settings = {"kafka.bootstrap.servers": options.bootstrap, **options.options}
    settings = sink_options(sink_settings).settings
    return settings.security.open_cluster(options.bootstrap, settings.client)


def _create_missing_topics(cluster: Cluster, plan: Plan) -> bool:
    """Create missing topics; return True if any was missing."""
    names = {each.target for each in plan.targets if each.partitions is None}
    for name in sorted(names):
        needed = max(each.partitions_needed for each in plan.targets if each.target == name)
        if plan.options.by_key:
            needed = max(plan.source.partition_counts[each.topic] for each in plan.targets if each.target == name)
        create_target(cluster, name, plan.options.creation, needed)
    return bool(names)


@dataclass
class _Run:
    """One run of a replay."""

    spark: SparkSession
    plan: Plan
    sequence: BatchSequence
    report: Report
    started_s: float
    records: int = 0
    value_bytes: int = 0

    def run(self, decided: int) -> ReplayReport:
        plan = self.plan
        offsets_done = plan.offsets_done
        self._report_progress(offsets_done)
        for step in plan.steps:
            self._write(step, decided)
            decided = self.sequence.mark_decided_settled()
            offsets_done += step.size
            self._report_progress(offsets_done)
        return ReplayReport(
            plan.name,
            plan.targets,
            tuple(plan.notes),
            len(plan.steps),
            self.records,
            self.value_bytes,
            offsets_done,
            monotonic() - self.started_s,
        )

    def _report_progress(self, offsets_done: int) -> None:
        self.report(Progress("replay", offsets_done, self.plan.offsets, self.records, self.value_bytes))

    def _write(self, step: Step, decided: int) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        options = self.plan.options
        observed = Observation()
        rows = arrange_rows(self.spark, self.plan, step)
        sizes = [F.coalesce(F.octet_length(name), F.lit(0)) for name in ("key", "value") if name in rows.columns]
        size = F.sum(sum(sizes[1:], sizes[0])).alias("size")
        rows = rows.observe(observed, F.count(F.lit(1)).alias("records"), size)
        sink_options = {
            "kafka.bootstrap.servers": options.bootstrap,
            **options.options,
            "kreplica.exactly.once": "many",
            "kreplica.sink.id": self.plan.name,
            "kreplica.batch.id": str(step.position),
            "kreplica.batch.after": str(decided),
        }
        rows.write.format("kreplica").options(**sink_options).mode("append").save()
        self.records += observed.get["records"]
        self.value_bytes += observed.get["size"] or 0


def arrange_rows(spark: SparkSession, plan: Plan, step: Step) -> DataFrame:
    """Arrange the rows of a step for the sink: each partition in one task, in order."""
    from pyspark.sql import functions as F

    options = plan.options
    count = max(1, min(spark.sparkContext.defaultParallelism, len(step.ranges)))
    if isinstance(plan.source, FileSource):
        count = spark.sparkContext.defaultParallelism
    rows = plan.source.rows(spark, step, count)
    names = {each.topic: each.target for each in plan.targets}
    if isinstance(plan.source, FileSource):
        rows = rows.where(F.col("topic").isin(list(names)))
    for bound, is_lower in ((options.from_ms, True), (options.to_ms, False)):
        if bound is not None:
            time = F.timestamp_millis(F.lit(bound))
            rows = rows.where(F.col("timestamp") >= time if is_lower else F.col("timestamp") < time)
    order = [name for name in ("topic", "partition", *plan.source.order) if name in rows.columns]
    ordered = rows.repartitionById(count, F.col(LANE)).sortWithinPartitions(*order)
    target = F.lit(None).cast("string")
    for topic, name in names.items():
        target = F.when(F.col("topic") == topic, F.lit(name)).otherwise(target)
    dropped = [LANE, *plan.source.order, *(["partition"] if options.by_key else [])]
    return ordered.withColumn("topic", target).drop(*dropped)
