"""What an audit found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, NamedTuple

from kreplica.spark.pipelines.audit.replica_findings import DIFFERENCES_MAX, Comparison, Coverage, Difference, Kind


class OfBroker(NamedTuple):
    """What was found at one broker.

    :param short: replicas that have to catch up.
    """

    broker: int
    replicas: int
    batches: int
    size_bytes: int
    short: int
    differences: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Of a whole audit.

    :param source: ``files`` or ``brokers``.
    :param brokers: whose replicas were looked at.
    :param notes: what was left out, and why.
    :param taken_over: partitions whose result is of an earlier run.
    :param undone: pieces of partitions that could not be compared.
    :param read_bytes: by this run.
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
        """Those that are named, by partition and offset."""
        return [difference for each in self.partitions for difference in each.differences]

    @property
    def difference_count(self) -> int:
        """Of all."""
        return sum(each.difference_count for each in self.partitions)

    @property
    def batches(self) -> int:
        """That were read, of all replicas."""
        return sum(coverage.batches for each in self.partitions for coverage in each.coverages)

    @property
    def size_bytes(self) -> int:
        """That were read, of all replicas."""
        return sum(coverage.size_bytes for each in self.partitions for coverage in each.coverages)

    @property
    def compared(self) -> int:
        """Partitions of which several replicas were read."""
        return sum(1 for each in self.partitions if sum(1 for own in each.coverages if own.batches) > 1)

    @property
    def alone(self) -> int:
        """Partitions of which one replica was read: its checksums are right or not, and nothing else is known."""
        return sum(1 for each in self.partitions if sum(1 for own in each.coverages if own.batches) == 1)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was compared: then nothing is proved."""
        return self.batches == 0

    @property
    def agrees(self) -> bool:
        """Whether something was compared, and all of it, and agrees."""
        return not (self.is_empty or self.undone or self.difference_count)

    def by_broker(self) -> list[OfBroker]:
        """Broker by broker; differences are those that are named."""
        differences = Counter(each.broker for each in self.differences)
        found = []
        for broker in sorted({*self.brokers, *differences}):
            own = [each for partition in self.partitions for each in partition.coverages if each.broker == broker]
            batches, size = sum(each.batches for each in own), sum(each.size_bytes for each in own)
            short = sum(each.is_short for each in own)
            found.append(OfBroker(broker, len(own), batches, size, short, differences[broker]))
        return found

    def as_document(self) -> dict[str, Any]:
        """For programs, as JSON has it."""
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
        """In a line."""
        if self.difference_count:
            places = sum(1 for each in self.partitions if each.difference_count)
            found = _counted(self.difference_count, "difference")
            return f"{found}, in {places:,} of {_counted(len(self.partitions), 'partition')}"
        if self.is_empty:
            return "nothing was compared, and nothing is proved"
        told = f"the replicas of {_counted(self.compared, 'partition')} agree below the high watermark"
        if self.alone:
            told += f"; of {self.alone:,} there was one only, and it is sound"
        return f"{told}; {_counted(self.undone, 'piece')} could not be compared" if self.undone else told


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def merged(pieces: Sequence[Comparison]) -> Comparison:
    """One partition's comparison, of those of its pieces, the first of which says from where to where."""
    first = pieces[0]
    whole = Comparison(first.topic, first.partition, first.start, first.high_watermark)
    named_ones = sorted((each for piece in pieces for each in piece.differences), key=lambda each: each.place)
    # What is missing behind a replica's end is told by each piece behind it, in the same words: the first is enough.
    differences = {(each.broker, each.kind, _without_end(each)): each for each in reversed(named_ones)}
    whole.differences = sorted(differences.values(), key=lambda each: each.place)[:DIFFERENCES_MAX]
    unnamed = sum(piece.difference_count for piece in pieces) - len(named_ones)
    whole.difference_count = len(differences) + unnamed
    whole.compacted_count = sum(piece.compacted_count for piece in pieces)
    coverages = sorted((each for piece in pieces for each in piece.coverages), key=lambda each: each.broker)
    for broker, of_broker in groupby(coverages, key=lambda each: each.broker):
        own = sorted(of_broker, key=lambda each: each.start)
        read = [each for each in own if each.batches]
        whole.coverages.append(
            Coverage(
                broker,
                own[0].start,
                max((each.end for each in read), default=own[0].start),
                sum(each.batches for each in own),
                sum(each.size_bytes for each in own),
                any(each.is_short for each in own),
            )
        )
    return whole


def _without_end(difference: Difference) -> int | str:
    return difference.detail if difference.kind is Kind.MISSING else difference.base_offset
