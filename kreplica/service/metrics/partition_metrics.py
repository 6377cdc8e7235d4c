"""Metrics of individual partitions, or their sums by topic (``kreplica.metrics.detail``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from typing import NamedTuple

from kreplica.interfaces import Family, Sample
from kreplica.interfaces import MetricKind as Kind
from kreplica.replication import Partition
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice
from kreplica.server.metadata.metadata_cache import TopicMetadata

LABELS = ("topic", "partition")

STEP = 100
"""Number of partitions between two checks of the clock."""

PartitionValue = Callable[[Partition], float]


class Detail(Enum):
    """Values of ``kreplica.metrics.detail``."""

    PARTITION = "partition"
    TOPIC = "topic"


class Row(NamedTuple):
    """A gauge reported per partition.

    :param is_sum: True if the values of several partitions can be added up.
    """

    name: str
    text: str
    value_of: PartitionValue
    is_sum: bool = True


REPLICAS: Sequence[Row] = (
    Row("kafka_log_log_size", "Log size of a replica on this broker, in bytes.", attrgetter("log.segments.size_bytes")),
    Row(
        "kafka_log_log_logstartoffset",
        "Log start offset of a replica on this broker.",
        attrgetter("log.log_start_offset"),
    ),
    Row("kafka_log_log_logendoffset", "Log end offset of a replica on this broker.", attrgetter("log.log_end_offset")),
)
"""Gauges of every partition with a replica on this broker."""

LED: Sequence[Row] = (
    Row(
        "kafka_topic_partition_current_offset",
        "High watermark of a partition that this broker leads.",
        attrgetter("high_watermark"),
    ),
    Row(
        "kafka_topic_partition_oldest_offset",
        "Log start offset of a partition that this broker leads.",
        attrgetter("log.log_start_offset"),
    ),
    Row(
        "kafka_topic_partition_leader",
        "ID of the leader, for partitions that this broker leads.",
        attrgetter("leadership.leader"),
        is_sum=False,
    ),
    Row(
        "kafka_topic_partition_replicas",
        "Replicas of a partition that this broker leads.",
        lambda p: len(p.leadership.replicas),
    ),
    Row(
        "kafka_topic_partition_in_sync_replica",
        "In-sync replicas of a partition that this broker leads.",
        lambda p: len(p.leadership.isr),
    ),
    Row(
        "kafka_topic_partition_under_replicated_partition",
        "1 if a partition that this broker leads is under-replicated.",
        lambda p: float(len(p.leadership.isr) < len(p.leadership.replicas)),
    ),
    Row(
        "kreplica_partition_open_transactions",
        "Open transactions in a partition that this broker leads.",
        lambda p: len(p.log.producers.ongoing_transactions),
    ),
)
"""Gauges of every partition led by this broker, so that a scrape of all brokers contains each partition once."""


async def partition_families(
    reactor: Reactor, partitions: Iterable[Partition], detail: Detail
) -> AsyncIterator[Family]:
    """Yield the gauges of all partitions with a replica on this broker."""
    time_slice = TimeSlice(reactor)
    replicas = [(_labels(partition), partition) for partition in partitions]
    led = [each for each in replicas if each[1].is_leader]
    for rows, listed in ((REPLICAS, replicas), (LED, led)):
        for row in rows:
            if detail is Detail.PARTITION:
                yield Family(row.name, Kind.GAUGE, row.text, LABELS, await _samples(time_slice, listed, row.value_of))
            elif row.is_sum:
                sums = await _sums(time_slice, listed, row.value_of)
                yield Family(row.name, Kind.GAUGE, row.text, LABELS[:1], sums)


async def topic_family(reactor: Reactor, topics: Mapping[str, TopicMetadata]) -> Family:
    """Return the number of partitions of each topic."""
    time_slice, samples = TimeSlice(reactor), []
    for name in sorted(topics):
        topic = topics.get(name)  # it may have been deleted in the meantime
        if topic is not None:
            samples.append(Sample((name,), len(topic.partitions)))
        if time_slice.is_over:
            await time_slice.next()
    return Family("kafka_topic_partitions", Kind.GAUGE, "Partitions of a topic.", LABELS[:1], samples)


Listed = Sequence[tuple[tuple[str, str], Partition]]


def _labels(partition: Partition) -> tuple[str, str]:
    key = partition.topic_partition
    return key.topic, str(key.partition)


async def _samples(time_slice: TimeSlice, listed: Listed, value_of: PartitionValue) -> list[Sample]:
    samples: list[Sample] = []
    for start in range(0, len(listed), STEP):
        samples += [Sample(labels, value_of(partition)) for labels, partition in listed[start : start + STEP]]
        if time_slice.is_over:
            await time_slice.next()
    return samples


async def _sums(time_slice: TimeSlice, listed: Listed, value_of: PartitionValue) -> list[Sample]:
    sums: dict[str, float] = {}
    for start in range(0, len(listed), STEP):
        for (topic, _), partition in listed[start : start + STEP]:
            sums[topic] = sums.get(topic, 0) + value_of(partition)
        if time_slice.is_over:
            await time_slice.next()
    return [Sample((topic,), value) for topic, value in sums.items()]
