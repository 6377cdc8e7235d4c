"""Report of an audit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, NamedTuple

from kreplica.spark.pipelines.audit.replica_findings import DIFFERENCES_MAX, Comparison, Coverage, Difference, Kind


class BrokerTotals(NamedTuple):
    """Results of one broker.

    :param short: replicas that are still catching up.
    """

    broker: int
    replicas: int
    batches: int
    size_bytes: int
    short: int
    differences: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Report of a whole audit.

    :param source: ``files`` or ``brokers``.
    :param brokers: brokers whose replicas were read.
    :param notes: omitted partitions and replicas, and the reasons.
    :param taken_over: partitions whose results come from an earlier run.
    :param undone: slices that could not be compared.
    :param read_bytes: bytes read by this run.
    """

    source: str
    cluster_id: str | None
    brokers: tuple[int, ...]
    partitions: tuple[Comparison, ...]
    notes: tuple[str, ...]
    taken_over: int
    undone: int
    read_bytes: int
    seconds: float

    @property
    def differences(self) -> list[Difference]:
        """Listed differences, by partition and offset."""
        return [difference for each in self.partitions for difference in each.differences]

    @property
    def difference_count(self) -> int:
        """Number of all differences."""
        return sum(each.difference_count for each in self.partitions)

    @property
    def batches(self) -> int:
        """Batches read, of all replicas."""
        return sum(coverage.batches for each in self.partitions for coverage in each.coverages)

    @property
    def size_bytes(self) -> int:
        """Bytes read, of all replicas."""
        return sum(coverage.size_bytes for each in self.partitions for coverage in each.coverages)

    @property
    def compared_count(self) -> int:
        """Number of partitions with at least two replicas read."""
        return sum(1 for each in self.partitions if sum(1 for own in each.coverages if own.batches) > 1)

    @property
    def single_replica_count(self) -> int:
        """Number of partitions with a single replica read; only its checksums were verified."""
        return sum(1 for each in self.partitions if sum(1 for own in each.coverages if own.batches) == 1)

    @property
    def is_empty(self) -> bool:
        """True if nothing was compared, so the audit proves nothing."""
        return self.batches == 0

    @property
    def agrees(self) -> bool:
        """True if the comparison is complete, not empty, and without differences."""
        return not (self.is_empty or self.undone or self.difference_count)

    def by_broker(self) -> list[BrokerTotals]:
        """Return the results by broker; ``differences`` counts only the listed ones."""
        differences = Counter(each.broker for each in self.differences)
        found = []
        for broker in sorted({*self.brokers, *differences}):
            own = [each for partition in self.partitions for each in partition.coverages if each.broker == broker]
            batches, size = sum(each.batches for each in own), sum(each.size_bytes for each in own)
            short = sum(each.is_short for each in own)
            found.append(BrokerTotals(broker, len(own), batches, size, short, differences[broker]))
        return found

    def as_document(self) -> dict[str, Any]:
        """Return the report as JSON-compatible values."""
        return {
            "agrees": self.agrees,
            "verdict": self.verdict,
            "difference_count": self.difference_count,
            "batches": self.batches,
            "size_bytes": self.size_bytes,
            **asdict(self),
        }

    @property
    def verdict(self) -> str:
        """One-line summary."""
        if self.difference_count:
            partitions_with_differences = sum(1 for each in self.partitions if each.difference_count)
            found = _count_text(self.difference_count, "difference")
            return f"{found}, in {partitions_with_differences:,} of {_count_text(len(self.partitions), 'partition')}"
        if self.is_empty:
            return "nothing was compared"
        summary = f"the replicas of {_count_text(self.compared_count, 'partition')} agree below the high watermark"
        if self.single_replica_count:
            summary += f"; {self.single_replica_count:,} with a single replica have valid checksums"
        return f"{summary}; {_count_text(self.undone, 'slice')} could not be compared" if self.undone else summary


def _count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def merge_slices(slices: Sequence[Comparison]) -> Comparison:
    """Merge the results of one partition: that of the plan, which covers the whole range, and those of the slices."""
    first = slices[0]
    total = Comparison(first.topic, first.partition, first.start, first.high_watermark)
    listed = sorted((each for each_slice in slices for each in each_slice.differences), key=lambda each: each.identity)
    # Each slice after a replica's end reports the same missing records: keep the first report.
    differences = {(each.broker, each.kind, _merge_key(each)): each for each in reversed(listed)}
    total.differences = sorted(differences.values(), key=lambda each: each.identity)[:DIFFERENCES_MAX]
    unlisted = sum(each_slice.difference_count for each_slice in slices) - len(listed)
    total.difference_count = len(differences) + unlisted
    total.compacted_count = sum(each_slice.compacted_count for each_slice in slices)
    coverages = sorted((each for each_slice in slices for each in each_slice.coverages), key=lambda each: each.broker)
    for broker, broker_coverages in groupby(coverages, key=lambda each: each.broker):
        own = sorted(broker_coverages, key=lambda each: each.start)
        read = [each for each in own if each.batches]
        total.coverages.append(
            Coverage(
                broker,
                own[0].start,
                max((each.end for each in read), default=own[0].start),
                sum(each.batches for each in own),
                sum(each.size_bytes for each in own),
                any(each.is_short for each in own),
            )
        )
    return total


def _merge_key(difference: Difference) -> int | str:
    return difference.detail if difference.kind is Kind.MISSING else difference.base_offset
