"""State of one producer in a log: its epoch, its last batches and its open transaction; recognizes retried batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kreplica.wire.batches import BatchHeader

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
    """State of one producer id in one log.

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


def find_duplicate(entry: ProducerEntry, header: BatchHeader) -> RecentBatch | None:
    """Return the earlier batch if a batch repeats one of the last five of its producer."""
    if header.producer_epoch != entry.epoch or header.base_sequence == NO_SEQUENCE:
        return None
    last_sequence = (header.base_sequence + header.last_offset_delta) & SEQUENCE_MASK
    for batch in entry.batches:
        if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
            return batch
    return None


def precedes_known_batches(entry: ProducerEntry, header: BatchHeader) -> bool:
    """Return True if a batch precedes every known batch of a producer that was replicated here after a gap.

    A follower that is behind the leader's log start offset skips the deleted records, and with them the producer's
    batches. After it becomes leader, a producer that received no response to them sends them again. Producers send
    batches in order, so later batches in the log prove that the earlier ones were appended. Clients treat
    DUPLICATE_SEQUENCE_NUMBER as success; after OUT_OF_ORDER_SEQUENCE_NUMBER, they would write the batches twice.

    If this log accepted the producer's first known batch as leader, the order proves nothing: an earlier batch may
    have been rejected as too large and be sent again in smaller batches. A producer's first batch is never a retry.
    """
    known = entry.batches
    if not known or header.producer_epoch != entry.epoch or len(known) >= RECENT_BATCHES_MAX:
        return False
    if header.base_sequence == 0:
        return False
    distance = (known[0].first_sequence - header.base_sequence) & SEQUENCE_MASK
    return header.last_offset_delta < distance <= SEQUENCE_MASK // 2


def is_forgotten_duplicate(entry: ProducerEntry, header: BatchHeader) -> bool:
    """Return True if a batch was appended, but before the last five batches of its producer.

    A retry can repeat a batch older than the last five: if only the response to that batch was lost, the producer
    sends new batches as soon as later ones are acknowledged. After OUT_OF_ORDER_SEQUENCE_NUMBER, the Java
    client would write the batch again in a new epoch.
    """
    if not entry.is_whole or header.producer_epoch != entry.epoch or header.base_sequence == NO_SEQUENCE:
        return False
    # After a wrap of the sequence numbers the answer is False: sequence 0 may then not be the start of the epoch.
    return header.base_sequence + header.last_offset_delta < entry.batches[0].first_sequence
