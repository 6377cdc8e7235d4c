"""Plan of a replay: source and target topics, progress of earlier runs, and the remaining steps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, NamedTuple

from kreplica.blocking import Cluster
from kreplica.blocking.admin import topic_settings
from kreplica.blocking.offsets import earliest_offsets, end_offsets, topic_partitions
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.archive.file_stores import normalize_path, store_of
from kreplica.spark.pipelines.archive.layout import archive_file, read_archive
from kreplica.spark.pipelines.replay.sources import (
    NO_TOPIC,
    FileSource,
    NotReplayable,
    Source,
    archive_source,
    digest,
    directory_source,
)
from kreplica.spark.pipelines.replay.steps import NOTHING_DONE, Selection, Step, plan_steps
from kreplica.transfer.offset_ranges import offset_count
from kreplica.transfer.topics import TopicCreation, check_partition_count, find_target, keeps_timestamps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kreplica.spark.sink.batch_sequence import BatchSequence

STEP_RECORDS = 1_000_000
STEP_BYTES = 256 << 20
"""File bytes per step; the data read from them is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Options of a replay.

    :param bootstrap: bootstrap brokers of the target cluster.
    :param topics: topics of the source; empty: all.
    :param renamed: target names by topic; ``NO_TOPIC`` denotes the only topic.
    :param starts: first offsets, by partition; ``ends`` are exclusive.
    :param from_ms: earliest timestamp, in milliseconds since 1970; ``to_ms`` is exclusive.
    :param by_key: choose each record's partition by its key instead of keeping the original partition.
    :param create: create missing topics with ``configs`` and ``replication_factor`` (None: the brokers' default).
    :param name: identifies this replay in the target cluster; None: derived from the other fields.
    :param step_records: approximate maximum records per step; ``step_bytes`` limits the size of its files.
    :param options: options of the sink, ``kafka.*``.
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
    configs: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    step_records: int = STEP_RECORDS
    step_bytes: int = STEP_BYTES
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def creation(self) -> TopicCreation:
        """Settings for the creation of missing topics."""
        return TopicCreation(self.create, replication_factor=self.replication_factor, configs=self.configs)


class Target(NamedTuple):
    """Target topic.

    :param partitions: number of partitions; None: the topic does not exist.
    :param records: approximate number of records already in the target, counted as offsets.
    :param restamps: True if the brokers replace the records' timestamps.
    :param retention_ms: retention time; -1: unlimited.
    """

    topic: str
    target: str
    partitions_needed: int
    partitions: int | None = None
    records: int = 0
    restamps: bool = False
    retention_ms: int = -1


@dataclass(frozen=True)
class Plan:
    """Plan of a replay.

    :param name: identifies the replay in the target cluster.
    :param description: text that identifies the source and the options; stored with the name, so that another replay
        cannot use that name.
    :param last_position: position that earlier runs have reached.
    :param offsets: number of offsets in all steps; earlier runs replayed ``offsets_done`` of them.
    :param steps: remaining steps.
    """

    source: Source
    options: ReplayOptions
    name: str
    description: str
    targets: tuple[Target, ...]
    last_position: int
    offsets: int
    offsets_done: int
    steps: tuple[Step, ...]

    @property
    def notes(self) -> list[str]:
        """Warnings for the user."""
        found = []
        for each in self.targets:
            if each.records and self.last_position == NOTHING_DONE:
                found.append(f"{each.target} already has {each.records:,} offsets: replayed records are appended")
            if each.restamps:
                found.append(f"{each.target} has message.timestamp.type=LogAppendTime: timestamps are not kept")
            oldest_ms = self.source.oldest_ms if self.options.from_ms is None else self.options.from_ms
            if oldest_ms is not None and 0 <= each.retention_ms < time() * 1000 - oldest_ms:
                found.append(
                    f"{each.target} has retention.ms={each.retention_ms}, but some records are older: "
                    "the brokers will soon delete them unless retention.ms is raised first"
                )
        return found


def find_source(spark: SparkSession, path: str) -> Source:
    """Open the source at a path: an archive, or a directory of Parquet files.

    :raise KreplicaError: the path contains neither, or its files cannot be replayed.
    """
    path = normalize_path(path)
    store = store_of(path, spark)
    if store.read(archive_file(path)) is not None:
        return archive_source(read_archive(path, store))
    return directory_source(spark, path)


def make_plan(cluster: Cluster, source: Source, options: ReplayOptions) -> Plan:
    """Return the plan; its steps are those that earlier runs have not replayed yet."""
    names = _target_names(source, options)
    targets = tuple(_target(cluster, topic, name, source, options) for topic, name in names.items())
    selection = _select(source, options, names)
    choices = {
        "topics": sorted(options.topics),
        "as": dict(sorted(options.renamed.items())),
        "by_key": options.by_key,
        "from": options.from_ms,
        "to": options.to_ms,
        "start": sorted(options.starts.items()),
        "end": sorted(options.ends.items()),
    }
    text = json.dumps(choices)
    description = f"{source.identity} {text}"
    description = f"{description[:1000]} ({digest(description)})"
    cluster_id = cluster.retrying(cluster.refresh).cluster_id
    name = options.name or f"replay-{digest(f'{source.key} {cluster_id} {text}')}"
    last_position = sequence_of(cluster, name, description).last_decided()
    sizes = {"records_max": options.step_records, "bytes_max": options.step_bytes}
    steps = tuple(plan_steps(source.units, selection, after=last_position, **sizes))
    offsets = sum(selection.clip(each).size for unit in source.units for each in unit.ranges)
    done = offsets - sum(step.size for step in steps)
    return Plan(source, options, name, description, targets, last_position, offsets, done, steps)


def _target_names(source: Source, options: ReplayOptions) -> dict[str, str]:
    """Return the target name of each selected topic."""
    existing = source.partition_counts.keys()
    for topic in [*options.topics, *options.renamed]:
        if topic and topic not in existing:
            names = ", ".join(each for each in sorted(existing) if each) or "without a name"
            raise NotReplayable(f"{source.path} has no topic {topic!r}; its topics are {names}")
    selection = [each for each in sorted(existing) if not options.topics or each in options.topics]
    common_target = options.renamed.get(NO_TOPIC)
    if common_target is not None and len(selection) > 1:
        count = len(selection)
        raise NotReplayable(
            f"{source.path}: {count} topics cannot all be renamed to {common_target!r}; "
            f"use TOPIC={common_target}"
        )
    found = {topic: options.renamed.get(topic, common_target or topic) for topic in selection}
    if not all(found.values()):
        raise NotReplayable(f"{source.path} has no column topic: specify the target topic (--as)")
    return found


def _select(source: Source, options: ReplayOptions, names: Mapping[str, str]) -> Selection:
    if isinstance(source, FileSource):
        if options.starts or options.ends:
            raise NotReplayable(f"{source.path}: rows without offsets cannot be selected by offset")
        return Selection()
    for partition in [*options.starts, *options.ends]:
        if partition.topic not in names or partition.partition >= source.partition_counts[partition.topic]:
            raise NotReplayable(f"{source.path}: {partition} does not exist or is not replayed")
    return Selection(frozenset(names), options.starts, options.ends)


def _target(cluster: Cluster, topic: str, name: str, source: Source, options: ReplayOptions) -> Target:
    needed = 0 if options.by_key else source.partition_counts[topic]
    view = find_target(cluster, name, options.creation)
    if view is None:
        return Target(topic, name, needed)
    check_partition_count(topic or source.path, needed, view)
    partitions = topic_partitions(cluster, name)
    starts, ends = earliest_offsets(cluster, partitions), end_offsets(cluster, partitions)
    settings = topic_settings(cluster, name)
    restamps = not keeps_timestamps(settings)
    deletes = "delete" in (settings["cleanup.policy"].value or "")
    retention_ms = int(settings["retention.ms"].value or -1) if deletes and not restamps else -1
    return Target(topic, name, needed, len(view.partitions), offset_count(starts, ends), restamps, retention_ms)


def sequence_of(cluster: Cluster, name: str, description: str) -> BatchSequence:
    """Return the batch sequence of a replay, stored in the target cluster."""
    from kreplica.spark.sink.batch_sequence import BatchSequence

    return BatchSequence(cluster, name, description)
