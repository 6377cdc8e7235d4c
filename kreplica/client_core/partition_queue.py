"""Batches on their way to one partition: their order, sequence numbers and rules for retries.

A batch that may have been written keeps its producer id, epoch and sequence numbers until its outcome is known, so that
the leader recognizes a retry.  A partition without such batches can restart with the next epoch and sequence number 0
(KIP-360); its batches are then renumbered.  Without sequence numbers, a partition has only one batch in flight at a
time, which preserves the order.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, Self, TypeVar

from kreplica.client_core.delivery import Outcome
from kreplica.client_core.errors import ClientError
from kreplica.model import TopicPartition
from kreplica.wire.batch_building import BatchBuilder
from kreplica.wire.batches import NO_SEQUENCE, SEQUENCE_MASK, stamp_producer

IN_FLIGHT_MAX = 5
"""Maximum number of batches in flight per partition; leaders recognize retries of the last five batches (KIP-98)."""

EPOCH_MAX = 32767

ORDER_STEP = 1 << 24
"""Difference between the ``order`` values of consecutive batches; parts of a split batch are numbered in between."""


class ProducerIdentity(NamedTuple):
    """Producer id and epoch, by which leaders recognize a producer."""

    producer_id: int
    epoch: int


class OutgoingBatch:
    """One batch, from its first record until its outcome.

    :param order: sort key among the batches of its partition.
    :param builder: collects the records; None if a subclass collects them in another way.
    :param due_s: time at which the batch is sent even if it is not full.
    :param deadline_s: time at which the batch fails if it is still waiting.
    :ivar data: the encoded batch, once it is closed.
    :ivar maybe_written: the batch was sent and may have been written, so a retry must keep its sequence numbers.
    """

    __slots__ = (
        "attempts",
        "builder",
        "count",
        "data",
        "deadline_s",
        "due_s",
        "identity",
        "maybe_written",
        "order",
        "outcome",
        "sequence",
        "size",
    )

    def __init__(
        self, partition: TopicPartition, order: int, builder: BatchBuilder | None, due_s: float, deadline_s: float
    ) -> None:
        self.builder = builder
        self.order = order
        self.outcome = Outcome(partition)
        self.due_s = due_s
        self.deadline_s = deadline_s
        self.count = 0
        self.size = 0
        self.data = bytearray()
        self.attempts = 0
        self.identity: ProducerIdentity | None = None
        self.sequence = NO_SEQUENCE
        self.maybe_written = False

    def close(self) -> None:
        """Stop accepting records and encode the batch."""
        assert self.builder is not None
        self.count, self.size = self.builder.record_count, self.builder.size
        self.data = bytearray(self.builder.build())
        self.builder = None

    def split(self) -> tuple[Self, Self] | None:
        """Split a batch that is too large for its partition into two, which together use the same sequence numbers.

        :return: None if the batch cannot be split.
        """
        return None


BatchT = TypeVar("BatchT", bound=OutgoingBatch)


class PartitionQueue(Generic[BatchT]):
    """Batches of one partition, owned by the producer.

    :ivar open: the batch that accepts records.
    :ivar waiting: closed batches in order; retries come first.
    :ivar in_flight: batches that were sent and have no response yet, in order.
    :ivar last_error: error of the last attempt; None after a success.
    :ivar must_restart: a batch with sequence numbers failed, so the leader would reject later numbers unless they
        restart.
    """

    def __init__(self, partition: TopicPartition, in_flight_max: int) -> None:
        self.partition = partition
        self.open: BatchT | None = None
        self.waiting: deque[BatchT] = deque()
        self.in_flight: list[BatchT] = []
        self.in_flight_max = in_flight_max
        self.retry_at_s = 0.0
        self.failures = 0
        self.last_error: ClientError | None = None
        self.identity: ProducerIdentity | None = None
        self.next_sequence = 0
        self.must_restart = False

    @property
    def is_idle(self) -> bool:
        """True if no batch is open, waiting or in flight."""
        return not (self.open or self.waiting or self.in_flight)

    def sendable(self, now_s: float) -> BatchT | None:
        """Return the batch that may be sent next, or None."""
        if not self.waiting or now_s < self.retry_at_s:
            return None
        first = self.waiting[0]
        if self.in_flight and (
            first.attempts > 0  # a retry must be alone in flight: its outcome decides whether later sequences are valid
            or self.in_flight[0].attempts > 1
            or len(self.in_flight) >= self.in_flight_max
            or self.must_restart
        ):
            return None
        return first

    def assign_sequence(self, batch: BatchT, identity: ProducerIdentity) -> None:
        """Assign sequence numbers to the next batch to send, unless it already has some.

        :param identity: the producer's identity; the partition may already be using a higher epoch.
        """
        if self.must_restart and not self.in_flight and not any(each.maybe_written for each in self.waiting):
            self._restart(identity)
        if self.identity is None:
            self.identity = identity
        if batch.sequence != NO_SEQUENCE:
            return
        batch.identity, batch.sequence = self.identity, self.next_sequence
        self.next_sequence = (self.next_sequence + batch.count) & SEQUENCE_MASK
        stamp_producer(batch.data, *batch.identity, batch.sequence)

    def undetectable_duplicates(self) -> list[BatchT]:
        """Return batches that may have been written but cannot keep their sequence numbers, because these restart."""
        if not self.must_restart or self.in_flight or not self.waiting or self.waiting[0].maybe_written:
            return []
        return [batch for batch in self.waiting if batch.maybe_written]

    def needs_producer_id(self) -> bool:
        """Return True if the partition must restart but the epochs of its producer id are exhausted."""
        return self.must_restart and self.identity is not None and self.identity.epoch >= EPOCH_MAX

    def _restart(self, identity: ProducerIdentity) -> None:
        before = self.identity
        if before is not None and before.producer_id == identity.producer_id:
            identity = ProducerIdentity(before.producer_id, before.epoch + 1)
        self.restart_with(identity)

    def restart_with(self, identity: ProducerIdentity | None) -> None:
        """Restart with sequence number 0; only allowed if the outcomes of all batches sent are known."""
        self.identity, self.next_sequence, self.must_restart = identity, 0, False
        for batch in self.waiting:
            batch.identity, batch.sequence = None, NO_SEQUENCE

    def mark_sent(self, batch: BatchT) -> None:
        """Move the first waiting batch to the batches in flight."""
        self.waiting.popleft()
        self.in_flight.append(batch)
        batch.attempts += 1

    def is_first(self, batch: BatchT) -> bool:
        """Return True if no earlier batch is waiting or in flight."""
        return all(each.order >= batch.order for each in (*self.in_flight, *self.waiting))

    def remove_in_flight(self, batch: BatchT) -> None:
        """Remove a batch from the batches in flight."""
        self.in_flight.remove(batch)

    def put_back(self, batch: BatchT, retry_at_s: float) -> None:
        """Insert a batch for a retry, in order."""
        self.retry_at_s = retry_at_s
        self.insert(batch)

    def insert(self, batch: BatchT) -> None:
        """Insert a closed batch, in order."""
        index = sum(each.order < batch.order for each in self.waiting)
        self.waiting.insert(index, batch)
