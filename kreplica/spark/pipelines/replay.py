"""Parquet files back to topics: each record once, in the order of its partition, with its time and its headers.

What is there is cut into steps (``replay_steps``), and each is a batch of the exactly-once sink whose number is the
position behind it.  So the target's cluster knows what is done: a run that is started again goes on there, and of two
runs at the same time one gives up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from kreplica.blocking import Cluster
from kreplica.blocking.admin import create_topic, topic_settings
from kreplica.blocking.offsets import earliest_offsets, end_offsets, topic_partitions
from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.sansio.topics import BROKERS_DEFAULT
from kreplica.spark.pipelines.archive_layout import archive_file, read_archive
from kreplica.spark.pipelines.file_stores import plain_path, store_of
from kreplica.spark.pipelines.progress import Progress, Report, nobody
from kreplica.spark.pipelines.replay_sources import (
    LANE,
    NO_TOPIC,
    ByFile,
    NotReplayable,
    Source,
    archive_source,
    digest,
    directory_source,
)
from kreplica.spark.pipelines.replay_steps import NOTHING_DONE, Chosen, Step, plan_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kreplica.spark.batch_sequence import BatchSequence

STEP_RECORDS = 1_000_000
STEP_BYTES = 256 << 20
"""Of files; what is read of them is larger."""


class TargetRefused(KreplicaError):
    """A topic does not take what is replayed; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be replayed, and where to.

    :param bootstrap: of the target's cluster.
    :param topics: of those that are there; none: all.
    :param renamed: other names for topics; that of ``NO_TOPIC`` is for the only one.
    :param starts: offsets to begin at, by partition; ``ends`` to end before.
    :param from_ms: records' times, in milliseconds since 1970: from here on; ``to_ms`` before.
    :param by_key: partitions are chosen by keys, not kept.
    :param create: topics that are not there are made, with ``replication_factor``; None: as the brokers' settings say.
    :param name: by which this replay is known to the target's cluster; None: made of the rest.
    :param step_records: written in one step, about; ``step_bytes`` of files.
    :param options: of the sink, ``kafka.*``.
    """

    bootstrap: str
    topics: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    from_ms: int | None = None
    to_ms: int | None = None
    by_key: bool = False
    create: bool = False
    replication_factor: int | None = None
    name: str | None = None
    step_records: int = STEP_RECORDS
    step_bytes: int = STEP_BYTES
    options: Mapping[str, str] = field(default_factory=dict)


class Target(NamedTuple):
    """Where a topic's records go.

    :param partitions: that the target has; None: it is not there.
    :param records: offsets that it has already, about.
    :param restamps: its brokers give records times of their own.
    """

    topic: str
    target: str
    partitions_needed: int
    partitions: int | None = None
    records: int = 0
    restamps: bool = False


@dataclass(frozen=True)
class Plan:
    """What a replay is to do.

    :param name: by which the target's cluster knows it.
    :param about: what it is; a name stands for one.
    :param offsets: in all steps; ``offsets_done`` of those that an earlier run has done.
    :param steps: that are left.
    """

    source: Source
    wanted: Wanted
    name: str
    about: str
    targets: tuple[Target, ...]
    decided: int
    offsets: int
    offsets_done: int
    steps: tuple[Step, ...]

    @property
    def notes(self) -> list[str]:
        """What somebody might not expect."""
        found = []
        for each in self.targets:
            if each.records and self.decided == NOTHING_DONE:
                found.append(f"{each.target} has records already, at {each.records:,} offsets: these come behind them")
            if each.restamps:
                found.append(f"{each.target} has message.timestamp.type=LogAppendTime: times are not kept")
        return found


@dataclass(frozen=True)
class ReplayReport:
    """What a run did.

    :param steps: that it wrote.
    :param records: that it wrote, of ``value_bytes`` in keys and values.
    :param offsets: that all runs of this replay have covered.
    """

    name: str
    targets: tuple[Target, ...]
    notes: tuple[str, ...]
    steps: int
    records: int
    value_bytes: int
    offsets: int
    seconds: float


def plan_replay(spark: SparkSession, path: str, wanted: Wanted) -> Plan:
    """What ``replay`` would do; nothing is changed.

    :raise KreplicaError: that cannot be done; the text says why.
    """
    source = find_source(spark, path)
    with _cluster(wanted) as cluster:
        return _plan(cluster, source, wanted)


def replay(spark: SparkSession, path: str, wanted: Wanted, report: Report = nobody) -> ReplayReport:
    """Write what is at a path to topics, behind what an earlier run of the same has written.

    :raise KreplicaError: that cannot be done, or not now; what was written is there once, and the next run goes on.
    """
    began_s = monotonic()
    source = find_source(spark, path)
    with _cluster(wanted) as cluster:
        plan = _plan(cluster, source, wanted)
        _make_targets(cluster, plan)
        sequence = _sequence(cluster, plan)
        decided = sequence.begin()
        if decided != plan.decided:
            plan = _plan(cluster, source, wanted)
        return _Run(spark, plan, sequence, report, began_s).run(decided)


def find_source(spark: SparkSession, path: str) -> Source:
    """What is at a path: an archive, or a directory of Parquet files.

    :raise KreplicaError: neither, or not what can be replayed.
    """
    path = plain_path(path)
    store = store_of(path, spark)
    if store.read(archive_file(path)) is not None:
        return archive_source(read_archive(path, store))
    return directory_source(spark, path)


# --- planning ---


def _cluster(wanted: Wanted) -> Cluster:
    from kreplica.spark.sink_options import sink_options

    given = {"kafka.bootstrap.servers": wanted.bootstrap, **wanted.options}
    return Cluster(wanted.bootstrap, options=sink_options(given).settings.client)


def _plan(cluster: Cluster, source: Source, wanted: Wanted) -> Plan:
    names = _targets(source, wanted)
    targets = tuple(_target(cluster, topic, name, source, wanted) for topic, name in names.items())
    chosen = _chosen(source, wanted, names)
    choice = {
        "topics": sorted(wanted.topics),
        "as": dict(sorted(wanted.renamed.items())),
        "by_key": wanted.by_key,
        "from": wanted.from_ms,
        "to": wanted.to_ms,
        "start": sorted(wanted.starts.items()),
        "end": sorted(wanted.ends.items()),
    }
    text = json.dumps(choice)
    about = f"{source.identity} {text}"
    about = f"{about[:1000]} ({digest(about)})"
    where = cluster.retrying(cluster.refresh).cluster_id
    name = wanted.name or f"replay-{digest(f'{source.key} {where} {text}')}"
    decided = _named_sequence(cluster, name, about).decided()
    sizes = {"records_max": wanted.step_records, "bytes_max": wanted.step_bytes}
    steps = tuple(plan_steps(source.lots, chosen, after=decided, **sizes))
    offsets = sum(chosen.clipped(each).size for lot in source.lots for each in lot.ranges)
    done = offsets - sum(step.size for step in steps)
    return Plan(source, wanted, name, about, targets, decided, offsets, done, steps)


def _targets(source: Source, wanted: Wanted) -> dict[str, str]:
    """The target's name of each topic that is wanted."""
    there = source.partition_counts.keys()
    for topic in [*wanted.topics, *wanted.renamed]:
        if topic and topic not in there:
            has = ", ".join(each for each in sorted(there) if each) or "none that has a name"
            raise NotReplayable(f"{source.path}: topic {topic!r} is not there; topics are {has}")
    chosen = [each for each in sorted(there) if not wanted.topics or each in wanted.topics]
    only = wanted.renamed.get(NO_TOPIC)
    if only is not None and len(chosen) > 1:
        raise NotReplayable(f"{source.path}: {len(chosen)} topics cannot all become {only!r}: TOPIC={only} names one")
    found = {topic: wanted.renamed.get(topic, only or topic) for topic in chosen}
    if not all(found.values()):
        raise NotReplayable(f"{source.path}: no column says the topic, so the target must be named (--as)")
    return found


def _chosen(source: Source, wanted: Wanted, names: Mapping[str, str]) -> Chosen:
    if isinstance(source, ByFile):
        if wanted.starts or wanted.ends:
            raise NotReplayable(f"{source.path}: rows have no offsets, so none can be chosen")
        return Chosen()
    for partition in [*wanted.starts, *wanted.ends]:
        if partition.topic not in names or partition.partition >= source.partition_counts[partition.topic]:
            raise NotReplayable(f"{source.path}: {partition} is not there, or not replayed")
    return Chosen(frozenset(names), wanted.starts, wanted.ends)


def _target(cluster: Cluster, topic: str, name: str, source: Source, wanted: Wanted) -> Target:
    needed = 0 if wanted.by_key else source.partition_counts[topic]
    cluster.retrying(lambda: cluster.refresh((name,)))
    view = cluster.view.topics.get(name)
    if view is None:
        if not wanted.create:
            raise TargetRefused(f"there is no topic {name!r}: --create makes it")
        return Target(topic, name, needed)
    has = len(view.partitions)
    if has < needed:
        raise TargetRefused(
            f"{topic or source.path} has {needed} partitions and {name} {has}: let it grow, or use --by-key"
        )
    partitions = topic_partitions(cluster, name)
    starts, ends = earliest_offsets(cluster, partitions), end_offsets(cluster, partitions)
    stamps = topic_settings(cluster, name)["message.timestamp.type"].value
    records = sum(ends[each] - starts[each] for each in partitions)
    return Target(topic, name, needed, has, records, stamps == "LogAppendTime")


# --- doing ---


def _make_targets(cluster: Cluster, plan: Plan) -> None:
    factor = plan.wanted.replication_factor or BROKERS_DEFAULT
    for name in {each.target for each in plan.targets if each.partitions is None}:
        needed = max(each.partitions_needed for each in plan.targets if each.target == name)
        if plan.wanted.by_key:
            needed = max(plan.source.partition_counts[each.topic] for each in plan.targets if each.target == name)
        create_topic(cluster, name, needed or BROKERS_DEFAULT, factor)


def _sequence(cluster: Cluster, plan: Plan) -> BatchSequence:
    return _named_sequence(cluster, plan.name, plan.about)


def _named_sequence(cluster: Cluster, name: str, about: str) -> BatchSequence:
    from kreplica.spark.batch_sequence import BatchSequence

    return BatchSequence(cluster, name, about)


@dataclass
class _Run:
    """One run: its steps, one after the other."""

    spark: SparkSession
    plan: Plan
    sequence: BatchSequence
    report: Report
    began_s: float
    records: int = 0
    value_bytes: int = 0

    def run(self, decided: int) -> ReplayReport:
        plan = self.plan
        done = plan.offsets_done
        self._tell(done)
        for step in plan.steps:
            self._write(step, decided)
            decided = self.sequence.settle_decided()
            done += step.size
            self._tell(done)
        return ReplayReport(
            plan.name,
            plan.targets,
            tuple(plan.notes),
            len(plan.steps),
            self.records,
            self.value_bytes,
            done,
            monotonic() - self.began_s,
        )

    def _tell(self, done: int) -> None:
        self.report(Progress("replay", done, self.plan.offsets, self.records, self.value_bytes))

    def _write(self, step: Step, decided: int) -> None:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        wanted = self.plan.wanted
        told = Observation()
        rows = arranged(self.spark, self.plan, step)
        sizes = [F.coalesce(F.octet_length(name), F.lit(0)) for name in ("key", "value") if name in rows.columns]
        size = F.sum(sum(sizes[1:], sizes[0])).alias("size")
        rows = rows.observe(told, F.count(F.lit(1)).alias("records"), size)
        options = {
            "kafka.bootstrap.servers": wanted.bootstrap,
            **wanted.options,
            "kreplica.exactly.once": "many",
            "kreplica.sink.id": self.plan.name,
            "kreplica.batch.id": str(step.position),
            "kreplica.batch.after": str(decided),
        }
        rows.write.format("kreplica").options(**options).mode("append").save()
        self.records += told.get["records"]
        self.value_bytes += told.get["size"] or 0


def arranged(spark: SparkSession, plan: Plan, step: Step) -> DataFrame:
    """A step's rows as the sink takes them: a partition's are in one task, and in order."""
    from pyspark.sql import functions as F

    wanted = plan.wanted
    count = max(1, min(spark.sparkContext.defaultParallelism, len(step.ranges)))
    if isinstance(plan.source, ByFile):
        count = spark.sparkContext.defaultParallelism
    rows = plan.source.rows(spark, step, count)
    names = {each.topic: each.target for each in plan.targets}
    if isinstance(plan.source, ByFile):
        rows = rows.where(F.col("topic").isin(list(names)))
    for bound, is_lower in ((wanted.from_ms, True), (wanted.to_ms, False)):
        if bound is not None:
            time = F.timestamp_millis(F.lit(bound))
            rows = rows.where(F.col("timestamp") >= time if is_lower else F.col("timestamp") < time)
    order = [name for name in ("topic", "partition", *plan.source.order) if name in rows.columns]
    lined = rows.repartitionById(count, F.col(LANE)).sortWithinPartitions(*order)
    target = F.lit(None).cast("string")
    for topic, name in names.items():
        target = F.when(F.col("topic") == topic, F.lit(name)).otherwise(target)
    dropped = [LANE, *plan.source.order, *(["partition"] if wanted.by_key else [])]
    return lined.withColumn("topic", target).drop(*dropped)
