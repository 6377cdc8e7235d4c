"""What a comparison of replicas finds: what differs, and how much was looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

DIFFERENCES_MAX = 1000
"""Of one partition, that are named; all are counted."""


class Kind(StrEnum):
    """What is wrong with a replica at one place."""

    DAMAGED = "damaged"
    """The bytes are not those that the checksum was made of, or no batch at all."""

    MISSING = "missing"
    """Others have a batch there, and so should this one."""

    DIFFERENT = "different"
    """Others have another batch there."""

    EPOCHS = "epochs"
    """The broker's list of leader epochs says another one than the batch, and all others, have."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where a replica does not agree with the others.

    :param detail: what it has, and what they have.
    """

    topic: str
    partition: int
    base_offset: int
    broker: int
    kind: Kind
    detail: str

    @property
    def place(self) -> tuple[int, int, Kind]:
        """By which it is known again."""
        return self.base_offset, self.broker, self.kind


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of one replica was looked at.

    :param start: from here on; ``end`` behind the last batch that was compared.
    :param is_short: it ends before others do: it has to catch up, and that is no difference.
    """

    broker: int
    start: int
    end: int
    batches: int
    size_bytes: int
    is_short: bool


@dataclass(slots=True)
class Comparison:
    """Of one partition, or of a span of it.

    :ivar high_watermark: up to where replicas have to agree.
    :ivar difference_count: of all, also of those that are not in ``differences``.
    :ivar compacted_count: batches that cleaners have left in one replica other than in the next.
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
        """Note a difference."""
        self.difference_count += 1
        if len(self.differences) < DIFFERENCES_MAX:
            self.differences.append(Difference(self.topic, self.partition, base_offset, broker, kind, detail))
