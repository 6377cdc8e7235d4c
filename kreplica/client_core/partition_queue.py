"""What is on its way to one partition: batches in order, their sequences, and what a retry may do.

An idempotent producer's rule: a batch that may have been written keeps its producer id, epoch and sequence until its
outcome is known, so that the partition's leader recognizes it.  Only a partition of which no such batch is left may
begin anew, with the next epoch and sequence 0 (KIP-360); what was never written is numbered again then.  Without such
numbers a partition has one batch under way at a time, which keeps the order.
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
"""Batches of one partition under way: as many as leaders recognize when they come again (KIP-98)."""

EPOCH_MAX = 32767

ORDERS_BETWEEN = 1 << 24
"""From one batch to the next: so often may a batch be divided, and its parts still have places in between."""


class ProducerIdentity(NamedTuple):
    """By what leaders know a producer."""

    producer_id: int
    epoch: int


class OutgoingBatch:
    """One batch from its first record until its outcome.

    :param order: its place among the batches of its partition.
    :param builder: takes the records; None where the class has another way to gather them.
    :param due_s: when it goes at the latest; ``deadline_s`` when it is given up.
    :ivar data: the batch, once it is closed.
    :ivar maybe_written: it was sent, and what came of it is not known: another try must be recognizable.
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
        """Take no more records: build the batch."""
        assert self.builder is not None
        self.count, self.size = self.builder.record_count, self.builder.size
        self.data = bytearray(self.builder.build())
        self.builder = None

    def split(self) -> tuple[Self, Self] | None:
        """The batch as two, closed and with numbers that fit, where it is too large for its partition.

        :return: None where it cannot be divided.
        """
        return None


BatchT = TypeVar("BatchT", bound=OutgoingBatch)


class PartitionQueue(Generic[BatchT]):
    """One partition's batches, owned by the producer.

    :ivar open: takes records.
    :ivar waiting: closed ones, in order; those that are tried again come first.
    :ivar in_flight: sent ones without an answer, in order.
    :ivar last_error: why the last try was in vain; None after one that was not.
    :ivar must_restart: a batch was given up, so the numbers behind it fit no more.
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
        """Whether nothing is on its way, or waits for it."""
        return not (self.open or self.waiting or self.in_flight)

    def sendable(self, now_s: float) -> BatchT | None:
        """The batch that may go next, or None."""
        if not self.waiting or now_s < self.retry_at_s:
            return None
        first = self.waiting[0]
        if self.in_flight and (
            first.attempts > 0  # what comes again comes alone: it decides whether the next ones fit
            or self.in_flight[0].attempts > 1
            or len(self.in_flight) >= self.in_flight_max
            or self.must_restart
        ):
            return None
        return first

    def number(self, batch: BatchT, identity: ProducerIdentity) -> None:
        """Give a batch that goes first its numbers, unless it has those it must keep.

        :param identity: the producer's; the partition may have a higher epoch of it.
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

    def unrecognizable(self) -> list[BatchT]:
        """Batches that may have been written and can be recognized no more: what goes before them begins anew."""
        if not self.must_restart or self.in_flight or not self.waiting or self.waiting[0].maybe_written:
            return []
        return [batch for batch in self.waiting if batch.maybe_written]

    def needs_producer_id(self) -> bool:
        """Whether the partition has used up all epochs of its producer id, and must begin anew."""
        return self.must_restart and self.identity is not None and self.identity.epoch >= EPOCH_MAX

    def _restart(self, identity: ProducerIdentity) -> None:
        before = self.identity
        if before is not None and before.producer_id == identity.producer_id:
            identity = ProducerIdentity(before.producer_id, before.epoch + 1)
        self.begin_with(identity)

    def begin_with(self, identity: ProducerIdentity | None) -> None:
        """Begin with sequence 0; only while no batch may have been written."""
        self.identity, self.next_sequence, self.must_restart = identity, 0, False
        for batch in self.waiting:
            batch.identity, batch.sequence = None, NO_SEQUENCE

    def sent(self, batch: BatchT) -> None:
        """The batch that waits first is under way."""
        self.waiting.popleft()
        self.in_flight.append(batch)
        batch.attempts += 1

    def is_first(self, batch: BatchT) -> bool:
        """Whether no earlier batch is without an outcome."""
        return all(each.order >= batch.order for each in (*self.in_flight, *self.waiting))

    def answered(self, batch: BatchT) -> None:
        """The batch is under way no more."""
        self.in_flight.remove(batch)

    def put_back(self, batch: BatchT, retry_at_s: float) -> None:
        """Let a batch wait for another try, in its place."""
        self.retry_at_s = retry_at_s
        self.insert(batch)

    def insert(self, batch: BatchT) -> None:
        """Let a closed batch wait, in its place."""
        place = sum(each.order < batch.order for each in self.waiting)
        self.waiting.insert(place, batch)
