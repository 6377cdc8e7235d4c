"""Position and status of each consumed partition, shared by the components of a consumer."""

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

    The consumer reads records from ``remaining``, a list iterator whose length hint is the number of records left.

    :ivar accepted: number of records that have been marked as processed.
    """

    __slots__ = ("accepted", "batch", "remaining")

    def __init__(self, batch: ConsumedBatch) -> None:
        self.batch = batch
        self.remaining = iter(batch.records)
        self.accepted = 0

    @property
    def taken(self) -> int:
        """Number of records that the consumer has read."""
        return len(self.batch.records) - length_hint(self.remaining)

    @property
    def position(self) -> int:
        """Offset of the next record, or the offset after the batch if all records have been read."""
        taken, records = self.taken, self.batch.records
        return records[taken].offset if taken < len(records) else self.batch.next_offset

    @property
    def processed(self) -> int:
        """Offset up to which all records are processed; excludes the last record read, unless it has been marked."""
        taken = self.taken
        return self.position if taken == self.accepted else self.batch.records[taken - 1].offset

    def stop(self) -> ConsumedBatch | None:
        """End the iteration; return the remaining records."""
        batch, taken = self.batch, self.taken
        left = batch.records[taken:]
        del batch.records[taken:]
        return ConsumedBatch(batch.partition, left, batch.next_offset, batch.leader_epoch) if left else None


class PartitionState:
    """State of one assigned partition; each new assignment has its own state.

    :ivar epoch: epoch of the leader that appended the record before the position (KIP-320).
    :ivar fetch_offset: next offset to fetch, after the buffered records.
    :ivar lookup_time: while the position is unknown, ListOffsets timestamp to look up; None means the committed offset.
    :ivar validated_epoch: leader epoch for which the position has been validated.
    :ivar preferred: replica to fetch from until ``preferred_until_s``, as named by the leader (KIP-392).
    :ivar is_paused: the application paused the partition.
    :ivar is_revoking: the partition is being revoked.
    :ivar is_busy: a handler is processing records of the partition.
    :ivar is_fetching: a Fetch request is in flight.
    :ivar is_validating: the position is being looked up or validated.
    :ivar is_unassigned: the partition is no longer assigned.
    :ivar reset_count: number of position resets.
    :ivar failures: number of consecutive failures; the first was at ``failing_since_s``.
    :ivar retry_at_s: time of the next attempt after a failure.
    :ivar error: error that the next delivery raises; cleared when the position is reset.
    """

    def __init__(self, key: TopicPartition, lookup_time: int | None = None) -> None:
        self.key = key
        self.buffer = FetchBuffer()
        self.cursor: RecordCursor | None = None
        self.topic_id: UUID = ZERO_UUID
        self.is_paused = self.is_revoking = self.is_busy = False
        self.is_fetching = self.is_validating = self.is_unassigned = False
        self.preferred, self.preferred_until_s = NO_BROKER, 0.0
        self._position: int | None = None
        self.reset_count = 0
        self.reset_to(lookup_time)

    def reset_to(self, lookup_time: int | None) -> None:
        """Reset to a position that must be looked up."""
        self._forget()
        self._position, self.lookup_time = None, lookup_time
        self._processed = self.fetch_offset = -1
        self.epoch = self.processed_epoch = self.validated_epoch = NO_EPOCH

    def begin_at(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Reset to an offset.

        :param epoch: epoch of the leader that appended the record before the offset, if known; used for validation.
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
        """Clear the buffer, so that its records are fetched again."""
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
        """True if some delivered records have not been processed yet."""
        position = self.position
        return position is not None and self.processed < position

    def advance(self, position: int, epoch: int) -> None:
        """Set the position to the end of a batch that is delivered as a whole."""
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
        """End record-by-record delivery and return the remaining records to the buffer."""
        cursor, self.cursor = self.cursor, None
        if cursor is not None:
            self._processed, self._position = cursor.processed, cursor.position
            unread = cursor.stop()
            if unread is not None:
                self.buffer.put_back(unread)

    def mark_processed(self) -> None:
        """Mark all delivered records as processed."""
        self.processed_epoch = self.epoch
        if self.cursor is None:
            if self._position is not None:
                self._processed = self._position
            return
        self.cursor.accepted = self.cursor.taken
        if not length_hint(self.cursor.remaining):
            self._processed = self._position = self.cursor.position
            self.cursor = None

    def redeliver(self, batch: ConsumedBatch) -> None:
        """Return delivered records to the buffer."""
        self._position = self._processed = batch.records[0].offset
        self.buffer.put_back(batch)

    def mark_processed_to(self, offset: int, epoch: int) -> None:
        """Mark records before an offset as processed."""
        self._processed, self.processed_epoch = offset, epoch
