"""State of one producer in a log: its epoch, its last batches and its open transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

RECENT_BATCHES_MAX = 5
NO_SEQUENCE = -1
NO_PRODUCER_EPOCH = -1
NO_OFFSET = -1
SEQUENCE_MASK = 0x7FFFFFFF


class RecentBatch(NamedTuple):
    """A batch written by a producer; ``offset_delta`` is the relative offset of its last record."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of the first record; sequence numbers wrap from 2**31 - 1 to 0."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    """State of one producer in one log.

    :param transaction_first_offset: start of its open transaction, or ``NO_OFFSET``.
    :param is_whole: True if this log has every batch of the epoch, from sequence 0 on; unknown after a snapshot.
    """

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    transaction_first_offset: int = NO_OFFSET
    timestamp_ms: int = -1
    batches: list[RecentBatch] = field(default_factory=list)
    is_whole: bool = field(default=False, compare=False)

    @property
    def last_sequence(self) -> int:
        """Sequence number of its last record in this epoch, or ``NO_SEQUENCE``."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE
