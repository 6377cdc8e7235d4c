"""What became of a record that was sent."""

from __future__ import annotations

from kreplica.client_core.errors import ClientError
from kreplica.model import TopicPartition

UNKNOWN_OFFSET = -1
"""Of a record that is written, at an offset that nobody told."""


class Outcome:
    """Of the records of one batch; the producer settles it once.

    :ivar base_offset: of the first record, once all are written.
    :ivar log_append_time_ms: the broker's stamp, where the topic wants that; -1 else.
    :ivar error: why none is written (or, with ``OutcomeUnknown``, maybe).
    """

    __slots__ = ("base_offset", "error", "is_settled", "log_append_time_ms", "partition")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.is_settled = False
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time_ms = -1
        self.error: ClientError | None = None


class Delivery:
    """Of one record, from ``Producer.send``; it is settled when ``Producer.flush`` returns, or before."""

    __slots__ = ("_index", "_outcome")

    def __init__(self, outcome: Outcome, index: int) -> None:
        self._outcome = outcome
        self._index = index

    @property
    def partition(self) -> TopicPartition:
        """Where it goes."""
        return self._outcome.partition

    @property
    def is_settled(self) -> bool:
        """Whether its outcome is known, or will never be."""
        return self._outcome.is_settled

    @property
    def error(self) -> ClientError | None:
        """Why it was not written; None as long as nothing is known, and where it was."""
        return self._outcome.error

    @property
    def offset(self) -> int:
        """Where it was written; ``UNKNOWN_OFFSET`` where nobody told: ``acks=0``, or a retry of what was there already.

        :raise ClientError: it was not written.
        :raise ValueError: nothing is known yet: ``flush`` first.
        """
        outcome = self._outcome
        if outcome.error is not None:
            raise outcome.error
        if not outcome.is_settled:
            raise ValueError(f"a record for {outcome.partition} is still on its way: flush the producer first")
        return UNKNOWN_OFFSET if outcome.base_offset < 0 else outcome.base_offset + self._index
