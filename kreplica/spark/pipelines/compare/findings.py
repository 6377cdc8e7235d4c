"""What is found between an archive and a topic; no Spark in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Bounds(NamedTuple):
    """What is compared of a partition.

    :param start: of offsets; the archive may have records before it that retention took from the topic.
    :param end: behind the last.
    """

    start: int
    end: int


class Kind(StrEnum):
    """What is wrong with the copy at one place."""

    MISSING = "missing"
    """The copy does not have the record."""

    DOUBLED = "doubled"
    """The copy has it again."""

    DIFFERENT = "different"
    """Key, value, headers or timestamp are others."""

    OUT_OF_ORDER = "out of order"
    """The copy has it before one that it ought to follow."""

    EXTRA = "extra"
    """The copy has a record that the original has not."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One record.

    :param topic: the archive's name for it, and its ``partition``.
    :param archive_offset: None: the archive does not have it.
    :param topic_offset: in the topic with which it is compared; None: that does not have it.
    """

    kind: Kind
    topic: str
    partition: int
    archive_offset: int | None
    topic_offset: int | None


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """Of one partition.

    :param other: the topic with which it was compared.
    :param records: of the original that were compared.
    :param deleted: records that were not, since retention or compaction took them from the topic.
    :param counts: of all differences, by kind.
    """

    topic: str
    other: str
    partition: int
    records: int
    deleted: int
    counts: dict[Kind, int]

    @property
    def difference_count(self) -> int:
        """Of all kinds."""
        return sum(self.counts.values())


class Found(NamedTuple):
    """Of one topic.

    :param differences: the first ones, by partition and place.
    """

    partitions: list[PartitionResult]
    differences: list[Difference]
