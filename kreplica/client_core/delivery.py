"""Outcome of a record that was sent."""

from __future__ import annotations

from kreplica.client_core.errors import ClientError
from kreplica.model import TopicPartition

UNKNOWN_OFFSET = -1
"""Offset of a written record whose offset the broker did not report."""


class Outcome:
    """Outcome of the records of one batch; the producer sets it once.

    :ivar base_offset: offset of the first record, once all records have been written.
    :ivar log_append_time_ms: the broker's timestamp if the topic uses LogAppendTime; otherwise -1.
    :ivar error: the error of all records; after ``OutcomeUnknown``, they may have been written.
    """

    __slots__ = ("base_offset", "error", "is_settled", "log_append_time_ms", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_settled = False
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = -1
        self.error: ClientError | None = None


class Delivery:
    """Outcome of one record, returned by ``Producer.send``; set no later than when ``Producer.flush`` returns."""

    __slots__ = ("_index", "_outcome")

    def __init__(self, outcome: Outcome, index: int) -> None:
        self._outcome = outcome
        self._index = index

    @property
    def partition(self) -> TopicPartition:
        """The record's partition."""
        return self._outcome.partition

    @property
    def is_settled(self) -> bool:
        """True if the outcome is final."""
        return self._outcome.is_settled

    @property
    def error(self) -> ClientError | None:
        """The error of the record; None if the record was written or is pending."""
        return self._outcome.error

    @property
    def offset(self) -> int:
        """The record's offset; ``UNKNOWN_OFFSET`` with ``acks=0`` or if a retry found that the record had been written.

        :raise ClientError: the record was not written.
        :raise ValueError: the outcome is pending; call ``flush`` first.
        """
        outcome = self._outcome
        if outcome.error is not None:
            raise outcome.error
        if not outcome.is_settled:
            raise ValueError(f"a record for {outcome.partition} is still pending: flush the producer first")
        return UNKNOWN_OFFSET if outcome.base_offset < 0 else outcome.base_offset + self._index
