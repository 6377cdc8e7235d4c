"""Duplicate detection: recognizes batches that an idempotent producer has sent again (KIP-98)."""

from __future__ import annotations

from kreplica.storage.producers.producer_entry import (
    NO_SEQUENCE,
    RECENT_BATCHES_MAX,
    SEQUENCE_MASK,
    ProducerEntry,
    RecentBatch,
)
from kreplica.wire.batches import BatchHeader


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
    # After a wrap of the sequence numbers the result is False: sequence 0 may then not be the start of the epoch.
    return header.base_sequence + header.last_offset_delta < entry.batches[0].first_sequence
