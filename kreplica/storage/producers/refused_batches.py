"""Batches of idempotent producers that one log refused for the moment, and that their producers will send again.

A producer has several batches in flight.  If one is refused, those behind it must not be answered with
OUT_OF_ORDER_SEQUENCE_NUMBER: librdkafka raises its epoch then and sends everything unacknowledged again, on all
partitions, and what is in a log already is written twice.  They get the error of the refused batch until that one
comes again and is appended.  A sequence that was never refused is a gap: OUT_OF_ORDER_SEQUENCE_NUMBER remains for it.
"""

from __future__ import annotations

from typing import NamedTuple

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.wire.batches import NO_SEQUENCE, SEQUENCE_MASK, BatchHeader

REFUSALS_MAX = 1000
"""Maximum number of producers of one log."""

LOGS_MISSING_MAX = 100
PRODUCERS_WITHOUT_LOG_MAX = 100
"""Maximum number of partitions without a log, and of producers of each, whose refusals are kept."""

KEPT_MS = 600_000
"""Producers that did not send a refused batch again for so long have given it up (librdkafka does after 5 minutes)."""

_HALF = (SEQUENCE_MASK + 1) // 2


class Refusal(NamedTuple):
    """Consecutive batches of one producer that were refused.

    :param first: the sequence of the first record of the first batch.
    :param end: the sequence behind the last record of the last batch.
    :param code: the error of the first batch.
    :param noted_ms: the last time at which the first batch was refused.
    """

    epoch: int
    first: int
    end: int
    code: ErrorCode
    noted_ms: int


class Refusals:
    """One for a log.

    :param producers_max: the producer whose last refusal is the oldest is forgotten when there are more.
    :ivar by_producer: producer id -> what it has to send again.
    """

    def __init__(self, producers_max: int = REFUSALS_MAX) -> None:
        self._producers_max = producers_max
        self.by_producer: dict[int, Refusal] = {}

    def note(self, header: BatchHeader, code: ErrorCode, now_ms: int) -> None:
        """A batch was refused.

        An error that is not retriable ends the sequence there: the batch will not be sent again.
        """
        first = header.base_sequence
        if first == NO_SEQUENCE or code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return
        epoch, end = header.producer_epoch, (header.last_sequence + 1) & SEQUENCE_MASK
        known = self.by_producer.pop(header.producer_id, None)
        if known is not None and known.epoch > epoch:
            self.by_producer[header.producer_id] = known
            return
        if known is None or known.epoch != epoch:
            refusal = Refusal(epoch, first, end, code, now_ms) if code.retriable else None
        else:
            refusal = _again(known, first, end, code, now_ms)
        if refusal is not None:
            self.by_producer[header.producer_id] = refusal
            if len(self.by_producer) > self._producers_max:
                del self.by_producer[next(iter(self.by_producer))]

    def code_for(self, header: BatchHeader, expected: int | None) -> ErrorCode | None:
        """The error of a batch that has to wait until a refused one was sent again; None if it does not.

        :param expected: the sequence that follows in the log; None if any may, as for an unknown producer.
        """
        refusal = self.by_producer.get(header.producer_id)
        if refusal is None or refusal.epoch != header.producer_epoch:
            return None
        if expected is None:
            expected = refusal.first
        if is_gap(expected, refusal) or not 0 < _distance(expected, header.base_sequence) < _HALF:
            return None
        return refusal.code

    def appended(self, header: BatchHeader) -> None:
        """A batch is in the log: forget what it has caught up with."""
        refusal = self.by_producer.get(header.producer_id)
        if refusal is None or refusal.epoch > header.producer_epoch:
            return
        next_sequence = (header.last_sequence + 1) & SEQUENCE_MASK
        if refusal.epoch < header.producer_epoch or not _is_refused(next_sequence, refusal):
            del self.by_producer[header.producer_id]
        else:
            self.by_producer[header.producer_id] = refusal._replace(first=next_sequence)

    def take_over(self, others: Refusals) -> None:
        """Know what others know, of producers of which nothing is known here."""
        self.by_producer = {**others.by_producer, **self.by_producer}

    def expire(self, now_ms: int) -> None:
        """Forget refused batches that were not sent again for ``KEPT_MS``."""
        oldest_ms = now_ms - KEPT_MS
        expired = [producer_id for producer_id, each in self.by_producer.items() if each.noted_ms <= oldest_ms]
        for producer_id in expired:
            del self.by_producer[producer_id]


class RefusalsWithoutLog:
    """Refusals for partitions whose log does not exist yet: a new topic, or no room for its log."""

    def __init__(self) -> None:
        self._of_partition: dict[TopicPartition, Refusals] = {}

    def note(self, key: TopicPartition, header: BatchHeader, code: ErrorCode, now_ms: int) -> None:
        """A batch for that partition was refused."""
        refusals = self._of_partition.pop(key, None) or Refusals(PRODUCERS_WITHOUT_LOG_MAX)
        self._of_partition[key] = refusals
        refusals.note(header, code, now_ms)
        if len(self._of_partition) > LOGS_MISSING_MAX:
            del self._of_partition[next(iter(self._of_partition))]

    def move_to(self, log_refusals: Refusals, key: TopicPartition) -> None:
        """The partition has a log now."""
        refusals = self._of_partition.pop(key, None)
        if refusals is not None:
            log_refusals.take_over(refusals)


def is_gap(expected: int, refusal: Refusal) -> bool:
    """Whether the sequence that a log expects was not refused: then it may never come."""
    return not _is_refused(expected, refusal)


def _is_refused(sequence: int, refusal: Refusal) -> bool:
    return _distance(refusal.first, sequence) < _distance(refusal.first, refusal.end)


def _again(known: Refusal, first: int, end: int, code: ErrorCode, now_ms: int) -> Refusal | None:
    """Return this state updated by another refusal of the same epoch."""
    if not code.retriable:
        if not _is_refused(first, known):
            return known
        return None if first == known.first else known._replace(end=first)
    if first == known.end:
        return known._replace(end=end)
    if first == known.first:
        return known._replace(end=known.end if _is_refused(end, known) else end, code=code, noted_ms=now_ms)
    if _distance(first, known.first) < _HALF:
        joined = known.end if end == known.first else end
        return Refusal(known.epoch, first, joined, code, now_ms)
    return known


def _distance(start: int, sequence: int) -> int:
    """How many sequences it is from one to another, which wrap from 2**31 - 1 to 0."""
    return (sequence - start) & SEQUENCE_MASK
