"""Operations of a replica in any role: reads, offsets and truncation."""

from __future__ import annotations

from uuid import UUID

from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import TopicPartition
from kreplica.storage.log.checks import read_error
from kreplica.storage.log.log import Log
from kreplica.storage.log.results import LogSlice
from kreplica.storage.segments.damage import Damage

_log = Logger()

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class Replica:
    """A log with its high watermark.

    :ivar high_watermark: all records below it are committed, as far as this broker knows.
    """

    __slots__ = ("high_watermark", "log", "topic_id", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID, log: Log, *, high_watermark: int) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, offset: int, size_max: int, *, isolation: int, at_least_one: bool) -> LogSlice:
        """Return whole batches, starting with the one that contains ``offset``, up to the last offset visible to a
        consumer.

        :raise KafkaError: OFFSET_OUT_OF_RANGE below the log start or beyond the log end. Between the high watermark and
            the log end the result is empty, because the high watermark may still advance.
        """
        return self.log.read(
            offset, size_max=size_max, offset_max=self.visible_end(isolation), at_least_one=at_least_one
        )

    def read_failed(self, offset: int, error: OSError | StorageError) -> KafkaError:
        """Handle a failed read and return the error for the response."""
        if isinstance(error, OSError):
            error = read_error(self.log, offset, error)
        if isinstance(error, Damage):
            self.log.report_damage(error)
        else:
            _log.error("reading {partition} failed: {error}", partition=str(self.topic_partition), error=str(error))
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def visible_end(self, isolation: int) -> int:
        """Return the first offset that a consumer may not read yet."""
        if isolation == READ_COMMITTED:
            return self.log.last_stable_offset(self.high_watermark)
        return self.high_watermark

    # --- offsets -----------------------------------------------------------------------------------------------------

    @property
    def acknowledgeable_end_offset(self) -> int:
        """The end offset that this replica may acknowledge; with ``flush.messages=1`` the end of the synced records."""
        log = self.log
        return log.durability.recovery_point if log.config.flush_messages <= 1 else log.log_end_offset

    def is_durable(self, offset: int) -> bool:
        """True if this replica has all records below ``offset`` with the durability that the topic requires."""
        return self.acknowledgeable_end_offset >= offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest known epoch up to ``epoch``, and its end offset (KIP-101, KIP-279).

        The current epoch ends at the log end; (-1, -1) if ``epoch`` is above all known epochs.
        """
        return self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)

    def is_committed(self, offset: int) -> bool:
        """True if all records below ``offset`` are committed."""
        return self.high_watermark >= offset

    # --- truncation --------------------------------------------------------------------------------------------------

    def fetch_position(self) -> tuple[int, int]:
        """Return the follower's fetch offset (its log end) and the leader epoch of its last record, -1 if unknown."""
        end_offset = self.log.log_end_offset
        return end_offset, self.log.leader_epochs.epoch_of(end_offset - 1)

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that contains ``offset`` and all later ones.

        :raise OSError: the device failed.
        """
        self.high_watermark = min(self.high_watermark, self.log.truncate_to(offset))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records and start the log at ``offset``, because the leader's log starts there.

        :raise OSError: the device failed.
        """
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset
