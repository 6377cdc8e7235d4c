"""Results of a comparison between an archive and a topic; independent of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Bounds(NamedTuple):
    """Offset range of a partition to compare.

    :param start: first offset; the archive may have earlier records, which retention deleted from the topic.
    :param end: exclusive.
    """

    start: int
    end: int


class Kind(StrEnum):
    """Kind of a difference in the copy."""

    MISSING = "missing"
    """The copy lacks the record."""

    DUPLICATE = "duplicate"
    """The copy has the record more than once."""

    DIFFERENT = "different"
    """Key, value, headers or timestamp differ."""

    OUT_OF_ORDER = "out of order"
    """In the copy, the record comes before one that precedes it in the original."""

    EXTRA = "extra"
    """The copy has a record that the original lacks."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A record that differs.

    :param topic: name of the topic in the archive.
    :param archive_offset: offset in the archive; None if the record is not in it.
    :param topic_offset: offset in the compared topic; None if the record is not in it.
    """

    kind: Kind
    topic: str
    partition: int
    archive_offset: int | None
    topic_offset: int | None


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """Result of one partition.

    :param other: name of the compared topic.
    :param records: number of compared records of the original.
    :param deleted: records not compared because retention or compaction deleted them from the topic.
    :param counts: all differences, by kind.
    """

    topic: str
    other: str
    partition: int
    records: int
    deleted: int
    counts: dict[Kind, int]

    @property
    def difference_count(self) -> int:
        """Number of differences of all kinds."""
        return sum(self.counts.values())


class TopicResult(NamedTuple):
    """Result of one topic.

    :param differences: the first differences, ordered by partition and position.
    """

    partitions: list[PartitionResult]
    differences: list[Difference]
