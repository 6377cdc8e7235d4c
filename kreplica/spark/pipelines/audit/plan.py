"""Plan of an audit: the partitions, replicas and offset ranges to compare, divided into slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from kreplica.client_core.options import ClientOptions
from kreplica.model import TopicPartition
from kreplica.spark.connection_security import ConnectionSecurity
from kreplica.spark.pipelines.audit.broker_replicas import BrokerReplica
from kreplica.spark.pipelines.audit.cluster import ClusterFacts, PartitionFacts
from kreplica.spark.pipelines.audit.file_replicas import FileReplica
from kreplica.spark.pipelines.audit.replica_comparison import Span
from kreplica.spark.pipelines.audit.replica_findings import Comparison, Kind

SLICE_BYTES = 128 << 20
"""Approximate bytes of one replica per slice; larger slices would balance tasks less evenly."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""Internal topics, which are always compacted."""

AnyReplica = FileReplica | BrokerReplica


class Slice(NamedTuple):
    """A slice of a partition, compared by one task.

    :param size_bytes: approximate total size of the slice in all replicas.
    """

    partition: TopicPartition
    replicas: tuple[AnyReplica, ...]
    span: Span
    size_bytes: int


@dataclass(slots=True)
class Plan:
    """Plan of a whole audit.

    :ivar brokers: brokers whose replicas are read.
    :ivar found: one entry per audited partition, with the differences found without reading batches; the results
        of its slices are added later.
    :ivar notes: omitted partitions and replicas, and the reasons.
    :ivar unread_replicas: number of replicas that are not read, by broker.
    """

    cluster_id: str | None
    brokers: tuple[int, ...]
    slices: list[Slice] = field(default_factory=list)
    found: dict[TopicPartition, Comparison] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unread_replicas: Counter[int] = field(default_factory=Counter)

    def all_notes(self) -> list[str]:
        """Return the notes, including the numbers of replicas that are not read."""
        unread = [f"broker {broker}: replicas not read: {count:,}" for broker, count in self.unread_replicas.items()]
        return [*sorted(unread), *self.notes]


def plan_for_files(
    replicas_by_broker: Mapping[int, Mapping[TopicPartition, FileReplica]],
    cluster_id: str | None,
    compacted: frozenset[str],
    facts: ClusterFacts | None,
) -> Plan:
    """Plan the comparison of replicas read from files.

    :param replicas_by_broker: replicas by broker.
    :param compacted: topics to treat as compacted.
    :param facts: None if the cluster was not queried.
    """
    plan = Plan(cluster_id, tuple(sorted(replicas_by_broker)))
    if facts is not None:
        compacted |= facts.compacted
    partitions = {each for own in replicas_by_broker.values() for each in own} | set(facts.partitions if facts else ())
    for partition in sorted(partitions):
        replicas = [own[partition] for _, own in sorted(replicas_by_broker.items()) if partition in own]
        partition_facts = facts.partitions.get(partition) if facts is not None else None
        if facts is not None and partition_facts is None:
            plan.notes.append(f"{partition}: the cluster does not have this partition")
            continue
        replicas = _matching_replicas(partition, replicas, partition_facts, plan)
        end = max((each.required_end for each in replicas), default=0)
        if partition_facts is not None and partition_facts.high_watermark is not None:
            end = partition_facts.high_watermark
        if partition_facts is not None:
            replicas = [_with_required_end(each, partition_facts) for each in replicas]
            plan.unread_replicas.update(set(partition_facts.replicas) - set(plan.brokers))
            if end > 0:  # a replica without records may have no directory
                _note_missing(partition, {each.broker for each in replicas}, partition_facts, plan)
        is_compacted = partition.topic in compacted or partition.topic in INTERNAL_TOPICS
        start = max((each.files.start for each in replicas), default=0)
        _add(plan, partition, replicas, Span(start, end, end if is_compacted else 0))
        for each in replicas:
            if each.metadata_error:
                plan.found[partition].add(each.broker, start, Kind.DAMAGED, each.metadata_error)
    return plan


def plan_for_brokers(
    facts: ClusterFacts, compacted: frozenset[str], client: ClientOptions, security: ConnectionSecurity
) -> Plan:
    """Plan the comparison of replicas fetched from brokers."""
    plan = Plan(facts.cluster_id, tuple(sorted(facts.brokers)))
    for partition, partition_facts in sorted(facts.partitions.items()):
        replicas = []
        for broker in sorted(partition_facts.replicas):
            address = facts.brokers.get(broker)
            if address is not None:
                required_end = (partition_facts.high_watermark or 0) if broker in partition_facts.in_sync else 0
                size = facts.sizes.get((broker, partition), 0)
                replicas.append(BrokerReplica(broker, address, partition, size, required_end, client, security))
        plan.unread_replicas.update(set(partition_facts.replicas) - set(plan.brokers))
        if partition_facts.high_watermark is None:
            plan.notes.append(f"{partition}: no leader reports the high watermark")
            continue
        is_compacted = partition.topic in compacted | facts.compacted | INTERNAL_TOPICS
        end = partition_facts.high_watermark
        _add(plan, partition, replicas, Span(partition_facts.start or 0, end, end if is_compacted else 0))
    return plan


def _matching_replicas(
    partition: TopicPartition, replicas: list[FileReplica], partition_facts: PartitionFacts | None, plan: Plan
) -> list[FileReplica]:
    """Omit replicas of a deleted topic with the same name, and replicas that are no longer assigned."""
    ids = Counter(each.topic_id for each in replicas if each.topic_id is not None)
    topic_id: UUID | None = ids.most_common(1)[0][0] if ids else None
    if partition_facts is not None and partition_facts.topic_id.int:
        topic_id = partition_facts.topic_id
    kept = []
    for each in replicas:
        if topic_id is not None and each.topic_id not in (None, topic_id):
            plan.notes.append(f"{partition}: {each.files.path} has another topic ID ({each.topic_id})")
        elif partition_facts is not None and each.broker not in partition_facts.replicas:
            plan.notes.append(f"{partition}: {each.files.path}: broker {each.broker} no longer has a replica")
        else:
            kept.append(each)
    return kept


def _with_required_end(replica: FileReplica, partition_facts: PartitionFacts) -> FileReplica:
    """Set the required end of a replica from the cluster state.

    The checkpoint of an out-of-sync replica may be too high.
    """
    if partition_facts.high_watermark is None:
        return replica
    is_in_sync = replica.broker in partition_facts.in_sync
    return replica._replace(required_end=partition_facts.high_watermark if is_in_sync else 0)


def _note_missing(partition: TopicPartition, present: set[int], partition_facts: PartitionFacts, plan: Plan) -> None:
    """Record a difference for each assigned broker whose directories have no replica."""
    for broker in sorted(set(partition_facts.replicas) & set(plan.brokers) - present):
        found = plan.found.setdefault(partition, Comparison(*partition, 0, 0))
        found.add(broker, partition_facts.start or 0, Kind.MISSING, "no directory contains the assigned replica")


def _add(plan: Plan, partition: TopicPartition, replicas: Sequence[AnyReplica], span: Span) -> None:
    found = plan.found.setdefault(partition, Comparison(*partition, span.start, span.end))
    found.start, found.high_watermark = span.start, span.end
    if not replicas:
        return
    if span.end <= span.start:
        if any(each.size_bytes for each in replicas):
            text = "no records between the log start offset and the high watermark; nothing was compared"
            plan.notes.append(f"{partition}: {text}")
        return
    plan.slices += _split(partition, tuple(replicas), span)


def _split(partition: TopicPartition, replicas: tuple[AnyReplica, ...], span: Span) -> Iterator[Slice]:
    """Split a span into slices of about equal size, if records have similar sizes; any offset can be a boundary."""
    size = max(each.size_bytes for each in replicas)
    total = sum(each.size_bytes for each in replicas)
    count = max(1, min(-(-size // SLICE_BYTES), span.end - span.start))
    bounds = [span.start + (span.end - span.start) * index // count for index in range(count + 1)]
    for start, end in pairwise(bounds):
        yield Slice(partition, replicas, Span(start, end, span.compacted_end), total // count)


def group_slices(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Group slices into tasks: small slices together, the largest first."""
    groups: list[list[Slice]] = []
    size = 0
    for each in sorted(slices, key=lambda each: -each.size_bytes):
        if not groups or size + each.size_bytes > SLICE_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(each)
        size += each.size_bytes
    return groups
