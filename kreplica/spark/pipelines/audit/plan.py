"""What is to be compared: which replicas of which partitions, from where to where, in which pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from kreplica.client_core.options import ClientOptions
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.audit.broker_replicas import BrokerReplica
from kreplica.spark.pipelines.audit.cluster import ClusterFacts, PartitionFacts
from kreplica.spark.pipelines.audit.file_replicas import FileReplica
from kreplica.spark.pipelines.audit.replica_comparison import Span
from kreplica.spark.pipelines.audit.replica_findings import Comparison, Kind

SLICE_BYTES = 128 << 20
"""So much of one replica is compared in one piece: enough to be worth a task, little enough to share out."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""Compacted always."""

AnyReplica = FileReplica | BrokerReplica


class Slice(NamedTuple):
    """One piece of a partition, compared by one task.

    :param size_bytes: of all its replicas, about.
    """

    partition: TopicPartition
    replicas: tuple[AnyReplica, ...]
    span: Span
    size_bytes: int


@dataclass(slots=True)
class Plan:
    """Of a whole audit.

    :ivar brokers: whose replicas are looked at.
    :ivar found: what is clear without reading a batch, by partition; each one that is audited is there.
    :ivar notes: what is left out, and why.
    :ivar unseen: how many replicas there are, by broker, that nobody looks at.
    """

    cluster_id: str | None
    brokers: tuple[int, ...]
    slices: list[Slice] = field(default_factory=list)
    found: dict[TopicPartition, Comparison] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unseen: Counter[int] = field(default_factory=Counter)

    def all_notes(self) -> list[str]:
        """With the brokers that have replicas which nobody looks at."""
        told = [f"broker {broker}: not looked at, replicas: {count:,}" for broker, count in self.unseen.items()]
        return [*sorted(told), *self.notes]


def plan_of_files(
    held: Mapping[int, Mapping[TopicPartition, FileReplica]],
    cluster_id: str | None,
    compacted: frozenset[str],
    facts: ClusterFacts | None,
) -> Plan:
    """Of replicas by their files.

    :param held: by broker.
    :param compacted: topics of which the caller knows that.
    :param facts: None where the cluster was not asked.
    """
    plan = Plan(cluster_id, tuple(sorted(held)))
    if facts is not None:
        compacted |= facts.compacted
    for partition in sorted({each for own in held.values() for each in own} | set(facts.partitions if facts else ())):
        replicas = [own[partition] for _, own in sorted(held.items()) if partition in own]
        told = facts.partitions.get(partition) if facts is not None else None
        if facts is not None and told is None:
            plan.notes.append(f"{partition}: the cluster has no such partition (any more)")
            continue
        replicas = _of_one_topic(partition, replicas, told, plan)
        end = max((each.has_to for each in replicas), default=0)
        if told is not None and told.high_watermark is not None:
            end = told.high_watermark
        if told is not None:
            replicas = [_in_sync(each, told) for each in replicas]
            plan.unseen.update(set(told.replicas) - set(plan.brokers))
            if end > 0:  # before the first record there need not be a directory
                _note_missing(partition, {each.broker for each in replicas}, told, plan)
        is_compacted = partition.topic in compacted or partition.topic in INTERNAL_TOPICS
        start = max((each.files.start for each in replicas), default=0)
        _add(plan, partition, replicas, Span(start, end, end if is_compacted else 0))
        for each in replicas:
            if each.wrong:
                plan.found[partition].add(each.broker, start, Kind.DAMAGED, each.wrong)
    return plan


def plan_of_brokers(facts: ClusterFacts, compacted: frozenset[str], client: ClientOptions) -> Plan:
    """Of replicas as their brokers send them."""
    plan = Plan(facts.cluster_id, tuple(sorted(facts.brokers)))
    for partition, told in sorted(facts.partitions.items()):
        replicas = []
        for broker in sorted(told.replicas):
            address = facts.brokers.get(broker)
            if address is not None:
                has_to = (told.high_watermark or 0) if broker in told.in_sync else 0
                size = facts.sizes.get((broker, partition), 0)
                replicas.append(BrokerReplica(broker, address, partition, size, has_to, client))
        plan.unseen.update(set(told.replicas) - set(plan.brokers))
        if told.high_watermark is None:
            plan.notes.append(f"{partition}: nobody who leads it says what is committed")
            continue
        is_compacted = partition.topic in compacted | facts.compacted | INTERNAL_TOPICS
        end = told.high_watermark
        _add(plan, partition, replicas, Span(told.start or 0, end, end if is_compacted else 0))
    return plan


def _of_one_topic(
    partition: TopicPartition, replicas: list[FileReplica], told: PartitionFacts | None, plan: Plan
) -> list[FileReplica]:
    """Leave out what is of an older topic of that name, or was given to other brokers."""
    ids = Counter(each.topic_id for each in replicas if each.topic_id is not None)
    wanted: UUID | None = ids.most_common(1)[0][0] if ids else None
    if told is not None and told.topic_id.int:
        wanted = told.topic_id
    kept = []
    for each in replicas:
        if wanted is not None and each.topic_id not in (None, wanted):
            plan.notes.append(f"{partition}: {each.files.path} is of another topic of that name ({each.topic_id})")
        elif told is not None and each.broker not in told.replicas:
            plan.notes.append(f"{partition}: {each.files.path}: broker {each.broker} has no replica (any more)")
        else:
            kept.append(each)
    return kept


def _in_sync(replica: FileReplica, told: PartitionFacts) -> FileReplica:
    """What it has to have as the cluster says: who is not in sync may have noted more than it has any more."""
    if told.high_watermark is None:
        return replica
    return replica._replace(has_to=told.high_watermark if replica.broker in told.in_sync else 0)


def _note_missing(partition: TopicPartition, having: set[int], told: PartitionFacts, plan: Plan) -> None:
    """Who should have a replica, and whose directories have none."""
    for broker in sorted(set(told.replicas) & set(plan.brokers) - having):
        found = plan.found.setdefault(partition, Comparison(*partition, 0, 0))
        found.add(broker, told.start or 0, Kind.MISSING, "it is to have a replica, and no directory of it has one")


def _add(plan: Plan, partition: TopicPartition, replicas: Sequence[AnyReplica], span: Span) -> None:
    found = plan.found.setdefault(partition, Comparison(*partition, span.start, span.end))
    found.start, found.high_watermark = span.start, span.end
    if not replicas:
        return
    if span.end <= span.start:
        if any(each.size_bytes for each in replicas):
            plan.notes.append(f"{partition}: nothing of it is noted as committed, and nothing was compared")
        return
    plan.slices += _cut(partition, tuple(replicas), span)


def _cut(partition: TopicPartition, replicas: tuple[AnyReplica, ...], span: Span) -> Iterator[Slice]:
    """Pieces of about as many bytes each, where records are of about one size; any offset will do to cut at."""
    size = max(each.size_bytes for each in replicas)
    total = sum(each.size_bytes for each in replicas)
    count = max(1, min(-(-size // SLICE_BYTES), span.end - span.start))
    cuts = [span.start + (span.end - span.start) * at // count for at in range(count + 1)]
    for start, end in pairwise(cuts):
        yield Slice(partition, replicas, Span(start, end, span.compacted_end), total // count)


def grouped(slices: Iterable[Slice]) -> list[list[Slice]]:
    """What is compared by one task each: small pieces together, the largest first."""
    groups: list[list[Slice]] = []
    size = 0
    for each in sorted(slices, key=lambda each: -each.size_bytes):
        if not groups or size + each.size_bytes > SLICE_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(each)
        size += each.size_bytes
    return groups
