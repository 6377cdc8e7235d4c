"""Batches of idempotent producers that a log rejected with a retriable error.

A producer has several batches in flight. After a rejected batch, the following ones must not get
OUT_OF_ORDER_SEQUENCE_NUMBER: librdkafka would increase its epoch and send all unacknowledged batches again, on all
partitions, and those already appended would be duplicated. They get the error of the rejected batch until that one is
sent again and appended. A missing batch that was never rejected is a real gap and gets OUT_OF_ORDER_SEQUENCE_NUMBER.
A gap is also real if later batches are sent again without the missing one: another leader acknowledged it and lost it.
"""

from __future__ import annotations

from typing import NamedTuple

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.wire.batches import NO_SEQUENCE, SEQUENCE_MASK, BatchHeader

REJECTIONS_MAX = 1000
"""Maximum number of producers of one log."""

LOGS_MISSING_MAX = 100
PRODUCERS_WITHOUT_LOG_MAX = 100
"""Maximum number of partitions without a log, and of producers per such partition, whose rejections are kept."""

KEPT_MS = 600_000
"""Time after which a producer no longer retries a rejected batch (5 minutes in librdkafka)."""

RESENT_WITHIN_MS = 30_000
"""Time after which a rejected batch is missing for good if later batches are sent again without it.

Producers send their batches again in order; only batches that were in flight together arrive in between.
"""

_NOT_REJECTED = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
"""Errors after which the producer's other batches are handled as before."""

_HALF = (SEQUENCE_MASK + 1) // 2


class Rejection(NamedTuple):
    """Consecutive rejected batches of one producer.

    :param first: sequence number of the first record of the first batch.
    :param end: sequence number after the last record of the last batch.
    :param code: error of the first batch.
    :param noted_ms: time at which the first batch was last rejected.
    """

    epoch: int
    first: int
    end: int
    code: ErrorCode
    noted_ms: int


class Rejections:
    """Rejected batches of one log.

    :param producers_max: maximum number of producers; beyond it, the least recently rejected one is removed.
    :ivar by_producer: rejected batches by producer ID.
    """

    __slots__ = ("_producers_max", "by_producer")

    def __init__(self, producers_max: int = REJECTIONS_MAX) -> None:
        self._producers_max = producers_max
        self.by_producer: dict[int, Rejection] = {}

    def note(self, header: BatchHeader, code: ErrorCode, now_ms: int) -> None:
        """Record a rejected batch.

        An error that is not retriable ends the sequence, because the batch will not be sent again.
        """
        first = header.base_sequence
        if first == NO_SEQUENCE or code in _NOT_REJECTED:
            return
        epoch, end = header.producer_epoch, (header.last_sequence + 1) & SEQUENCE_MASK
        previous = self.by_producer.pop(header.producer_id, None)
        if previous is not None and previous.epoch > epoch:
            self.by_producer[header.producer_id] = previous
            return
        if previous is None or previous.epoch != epoch:
            rejection = Rejection(epoch, first, end, code, now_ms) if code.retriable else None
        else:
            rejection = _update(previous, first, end, code, now_ms)
        if rejection is not None:
            self.by_producer[header.producer_id] = rejection
            if len(self.by_producer) > self._producers_max:
                del self.by_producer[next(iter(self.by_producer))]

    def code_for(self, header: BatchHeader, expected: int | None) -> ErrorCode | None:
        """Return the error for a batch that must wait for a rejected one, or None.

        :param expected: next sequence number in the log; None if any is accepted, as for an unknown producer.
        """
        rejection = self.by_producer.get(header.producer_id)
        if rejection is None or rejection.epoch != header.producer_epoch:
            return None
        if expected is None:
            expected = rejection.first
        if is_gap(expected, rejection) or not 0 < _distance(expected, header.base_sequence) < _HALF:
            return None
        return rejection.code

    def note_appended(self, header: BatchHeader) -> None:
        """Remove rejected batches that have been appended."""
        rejection = self.by_producer.get(header.producer_id)
        if rejection is None or rejection.epoch > header.producer_epoch:
            return
        next_sequence = (header.last_sequence + 1) & SEQUENCE_MASK
        if rejection.epoch < header.producer_epoch or not _is_rejected(next_sequence, rejection):
            del self.by_producer[header.producer_id]
        else:
            self.by_producer[header.producer_id] = rejection._replace(first=next_sequence)

    def add_missing(self, other: Rejections) -> None:
        """Add another object's entries for producers that are unknown here."""
        self.by_producer = {**other.by_producer, **self.by_producer}

    def expire(self, now_ms: int) -> None:
        """Remove batches that were not sent again for ``KEPT_MS``."""
        oldest_ms = now_ms - KEPT_MS
        expired = [producer_id for producer_id, each in self.by_producer.items() if each.noted_ms <= oldest_ms]
        for producer_id in expired:
            del self.by_producer[producer_id]


class RejectionsWithoutLog:
    """Rejected batches of partitions without a log: new topics, or no disk space for the log."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, Rejections] = {}

    def note(self, key: TopicPartition, header: BatchHeader, code: ErrorCode, now_ms: int) -> None:
        """Record a rejected batch for a partition."""
        rejections = self._by_partition.pop(key, None) or Rejections(PRODUCERS_WITHOUT_LOG_MAX)
        self._by_partition[key] = rejections
        rejections.note(header, code, now_ms)
        if len(self._by_partition) > LOGS_MISSING_MAX:
            del self._by_partition[next(iter(self._by_partition))]

    def pop(self, key: TopicPartition) -> Rejections | None:
        """Remove and return the entries of a partition, for its new log."""
        return self._by_partition.pop(key, None)


def is_gap(expected: int, rejection: Rejection) -> bool:
    """True if the expected sequence number was never rejected, so that it may never arrive."""
    return not _is_rejected(expected, rejection)


def _is_rejected(sequence: int, rejection: Rejection) -> bool:
    return _distance(rejection.first, sequence) < _distance(rejection.first, rejection.end)


def _update(previous: Rejection, first: int, end: int, code: ErrorCode, now_ms: int) -> Rejection | None:
    """Return the state after another rejection in the same epoch, or None if no batch is missing any longer."""
    if not code.retriable:
        if not _is_rejected(first, previous):
            return previous
        return None if first == previous.first else previous._replace(end=first)
    if first == previous.end:
        return previous._replace(end=end)
    if first == previous.first:
        return previous._replace(end=previous.end if _is_rejected(end, previous) else end, code=code, noted_ms=now_ms)
    if _distance(first, previous.first) < _HALF:
        combined_end = previous.end if end == previous.first else end
        return Rejection(previous.epoch, first, combined_end, code, now_ms)
    return previous if now_ms - previous.noted_ms < RESENT_WITHIN_MS else None


def _distance(start: int, sequence: int) -> int:
    """Return the distance between two sequence numbers, which wrap from 2**31 - 1 to 0."""
    return (sequence - start) & SEQUENCE_MASK
