"""Position and status of each consumed partition, shared by the parts of a consumer."""

from __future__ import annotations

from operator import length_hint
from uuid import UUID

from kreplica.client.consumer.fetch_buffer import FetchBuffer
from kreplica.client.consumer.records import ConsumedBatch
from kreplica.client_core.errors import ClientError
from kreplica.client_core.offsets import CommittedOffset
from kreplica.model import NO_EPOCH, ZERO_UUID, TopicPartition

NO_BROKER = -1


class RecordCursor:
    """A batch that is delivered record by record.

    The consumer takes records from ``rest``, a list iterator; its length hint is the number of records left.

    :ivar accepted: number of records that are marked as processed.
    """

    __slots__ = ("accepted", "batch", "rest")

    def __init__(self, batch: ConsumedBatch) -> None:
        self.batch = batch
        self.rest = iter(batch.records)
        self.accepted = 0

    @property
    def taken(self) -> int:
        """Number of records taken."""
        return len(self.batch.records) - length_hint(self.rest)

    @property
    def position(self) -> int:
        """Offset of the next record, or the offset after the batch."""
        taken, records = self.taken, self.batch.records
        return records[taken].offset if taken < len(records) else self.batch.next_offset

    @property
    def processed(self) -> int:
        """Offset up to which all records are processed; without the last record taken, unless it was marked."""
        taken = self.taken
        return self.position if taken == self.accepted else self.batch.records[taken - 1].offset

    def stop(self) -> ConsumedBatch | None:
        """End the iteration; return the remaining records."""
        batch, taken = self.batch, self.taken
        left = batch.records[taken:]
        del batch.records[taken:]
        return ConsumedBatch(batch.partition, left, batch.next_offset, batch.leader_epoch) if left else None


class PartitionState:
    """State of one assigned partition; a new assignment creates a new state.

    :ivar epoch: epoch of the leader that appended the record before the position (KIP-320).
    :ivar fetch_offset: next offset to fetch, after the buffer.
    :ivar wanted_time: ListOffsets time of the start while the position is unknown; None: the committed offset.
    :ivar validated_epoch: leader epoch for which the position was validated.
    :ivar preferred: replica that the leader named to fetch from, until ``preferred_until_s`` (KIP-392).
    :ivar is_paused: the application paused the partition.
    :ivar is_revoking: the partition is being revoked.
    :ivar is_busy: a handler processes records of the partition.
    :ivar is_fetching: a Fetch request is in flight.
    :ivar is_validating: the position is being looked up or validated.
    :ivar is_over: the partition is no longer assigned.
    :ivar reset_count: number of position resets.
    :ivar failures: number of consecutive failures, the first at ``failing_since_s``.
    :ivar retry_at_s: time of the next attempt after a failure.
    :ivar error: final error, until the position is reset.
    """

    def __init__(self, key: TopicPartition, wanted_time: int | None = None) -> None:
        self.key = key
        self.buffer = FetchBuffer()
        self.cursor: RecordCursor | None = None
        self.topic_id: UUID = ZERO_UUID
        self.is_paused = self.is_revoking = self.is_busy = self.is_fetching = self.is_validating = self.is_over = False
        self.preferred, self.preferred_until_s = NO_BROKER, 0.0
        self._position: int | None = None
        self.reset_count = 0
        self.reset_to(wanted_time)

    def reset_to(self, wanted_time: int | None) -> None:
        """Reset to a position that is still to be looked up."""
        self._forget()
        self._position, self.wanted_time = None, wanted_time
        self._processed = self.fetch_offset = -1
        self.epoch = self.processed_epoch = self.validated_epoch = NO_EPOCH

    def begin_at(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Reset to an offset.

        :param epoch: epoch of the leader that appended the record before the offset, for validation; if known.
        """
        self._forget()
        self._position = self._processed = self.fetch_offset = offset
        self.epoch = self.processed_epoch = epoch
        self.validated_epoch = NO_EPOCH

    def _forget(self) -> None:
        self.reset_count += 1
        if self.cursor is not None:
            self.cursor.stop()
            self.cursor = None
        self.buffer.clear()
        self.error: ClientError | None = None
        self.reset_failures()

    def refetch(self) -> None:
        """Clear the buffer, to fetch its records again."""
        if self._position is not None:
            self.put_back()
            self.buffer.clear()
            self.fetch_offset = self._position

    def reset_failures(self) -> None:
        """Reset the failure counters."""
        self.failures, self.failing_since_s, self.retry_at_s = 0, 0.0, 0.0

    # --- positions ---

    @property
    def position(self) -> int | None:
        """Offset of the next record to deliver; None if unknown."""
        return self._position if self.cursor is None else self.cursor.position

    @property
    def processed(self) -> int:
        """Offset up to which all records are processed; -1 if unknown."""
        return self._processed if self.cursor is None else self.cursor.processed

    @property
    def committable(self) -> CommittedOffset | None:
        """The offset to commit, if known."""
        return None if self.processed < 0 else CommittedOffset(self.processed, self.processed_epoch)

    @property
    def has_unprocessed(self) -> bool:
        """True if delivered records are not processed yet."""
        position = self.position
        return position is not None and self.processed < position

    def advance(self, position: int, epoch: int) -> None:
        """Set the position to the end of a batch that is delivered at once."""
        self._position, self.epoch = position, epoch

    def skip(self, position: int) -> None:
        """Advance over a range without records."""
        if not self.has_unprocessed:
            self._processed = position
        self._position = position

    def deliver_one_by_one(self, batch: ConsumedBatch) -> RecordCursor:
        """Deliver a batch record by record."""
        self.cursor = RecordCursor(batch)
        self.epoch = batch.leader_epoch
        return self.cursor

    def put_back(self) -> None:
        """End record-by-record delivery; the remaining records return to the buffer."""
        cursor, self.cursor = self.cursor, None
        if cursor is not None:
            self._processed, self._position = cursor.processed, cursor.position
            left = cursor.stop()
            if left is not None:
                self.buffer.put_back(left)

    def mark_processed(self) -> None:
        """Mark all delivered records as processed."""
        self.processed_epoch = self.epoch
        if self.cursor is None:
            if self._position is not None:
                self._processed = self._position
            return
        self.cursor.accepted = self.cursor.taken
        if not length_hint(self.cursor.rest):
            self._processed = self._position = self.cursor.position
            self.cursor = None

    def redeliver(self, batch: ConsumedBatch) -> None:
        """Return delivered records to the buffer."""
        self._position = self._processed = batch.records[0].offset
        self.buffer.put_back(batch)

    def mark_processed_to(self, offset: int, epoch: int) -> None:
        """Mark records before an offset as processed."""
        self._processed, self.processed_epoch = offset, epoch
