"""Results of a replica comparison: the differences, and the part of each replica that was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

DIFFERENCES_MAX = 1000
"""Maximum number of differences listed per partition; all are counted."""


class Kind(StrEnum):
    """Kind of a difference."""

    DAMAGED = "damaged"
    """The bytes do not match the checksum, or are not a batch."""

    MISSING = "missing"
    """Other replicas have a batch at this offset, and this replica must have it."""

    DIFFERENT = "different"
    """Other replicas have a different batch at this offset."""

    EPOCHS = "epochs"
    """The leader epoch cache of the replica contradicts the batch, which all replicas have."""


@dataclass(frozen=True, slots=True)
class Difference:
    """An offset at which a replica differs from the others.

    :param detail: description for the user.
    """

    topic: str
    partition: int
    base_offset: int
    broker: int
    kind: Kind
    detail: str

    @property
    def identity(self) -> tuple[int, int, Kind]:
        """Key that identifies a difference across two comparisons."""
        return self.base_offset, self.broker, self.kind


@dataclass(frozen=True, slots=True)
class Coverage:
    """The part of one replica that was read.

    :param start: first offset; ``end`` is the offset after the last compared batch.
    :param is_short: True if the replica ends before the others and is still catching up, which is not a difference.
    """

    broker: int
    start: int
    end: int
    batches: int
    size_bytes: int
    is_short: bool


@dataclass(slots=True)
class Comparison:
    """Result for a partition, or a span of it.

    :ivar high_watermark: end of the range in which replicas must agree.
    :ivar difference_count: all differences, including those not in ``differences``.
    :ivar compacted_count: batches that differ between replicas because of compaction.
    """

    topic: str
    partition: int
    start: int
    high_watermark: int
    coverages: list[Coverage] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    difference_count: int = 0
    compacted_count: int = 0

    def add(self, broker: int, base_offset: int, kind: Kind, detail: str) -> None:
        """Record a difference."""
        self.difference_count += 1
        if len(self.differences) < DIFFERENCES_MAX:
            self.differences.append(Difference(self.topic, self.partition, base_offset, broker, kind, detail))
