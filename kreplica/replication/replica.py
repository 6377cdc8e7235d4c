"""What any replica knows and does with its log, whatever its role: read it, cut it, say how far it goes."""

from __future__ import annotations

from uuid import UUID

from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import TopicPartition
from kreplica.storage.log.log import Log
from kreplica.storage.log.results import LogSlice
from kreplica.storage.segments.damage import Damage

_log = Logger()

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class Replica:
    """A log, and how much of it is committed.

    :ivar high_watermark: below it every record is committed, as far as is known here.
    """

    __slots__ = ("high_watermark", "log", "topic_id", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID, log: Log, *, high_watermark: int) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, offset: int, size_max: int, *, isolation: int, at_least_one: bool) -> LogSlice:
        """Whole batches from the one that holds ``offset``, as far as a consumer may see.

        :raise KafkaError: OFFSET_OUT_OF_RANGE below the log's start or beyond its end; between the high watermark and
            the end the answer is empty (the high watermark may be on its way).
        """
        return self.log.read(
            offset, size_max=size_max, offset_max=self.visible_end(isolation), at_least_one=at_least_one
        )

    def cannot_be_read(self, offset: int, error: OSError | StorageError) -> KafkaError:
        """What to answer to whoever read from an offset on; damage is dealt with."""
        if isinstance(error, OSError):
            error = self.log.unreadable(offset, error)
        if isinstance(error, Damage):
            self.log.found_damage(error)
        else:
            _log.error("{partition} cannot be read: {error}", partition=str(self.topic_partition), error=str(error))
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def visible_end(self, isolation: int) -> int:
        """The first offset that a consumer may not see yet."""
        if isolation == READ_COMMITTED:
            return self.log.last_stable_offset(self.high_watermark)
        return self.high_watermark

    # --- how far it goes ---------------------------------------------------------------------------------------------

    @property
    def end_offset_that_counts(self) -> int:
        """The end of what this replica may say that it has: with ``flush.messages=1`` only what is synced."""
        log = self.log
        return log.recovery_point if log.config.flush_messages <= 1 else log.log_end_offset

    def is_kept(self, offset: int) -> bool:
        """Whether this replica has all records below ``offset`` as safely as the topic asks for."""
        return self.end_offset_that_counts >= offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Where a leader epoch ended here (KIP-101, KIP-279): the largest known epoch up to it, and its end.

        The running epoch ends at the log's end; (-1, -1) where the epoch lies above all.
        """
        return self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)

    def is_committed(self, offset: int) -> bool:
        """Whether all records below ``offset`` are committed."""
        return self.high_watermark >= offset

    # --- cutting it --------------------------------------------------------------------------------------------------

    def fetch_position(self) -> tuple[int, int]:
        """Where a follower goes on: its log's end, and the leader epoch of its last record (-1 where none is known)."""
        end_offset = self.log.log_end_offset
        return end_offset, self.log.leader_epochs.epoch_of(end_offset - 1)

    def truncate_to(self, offset: int) -> None:
        """Cut what the leader does not have, with the batch that holds ``offset``.

        :raise OSError: the device fails.
        """
        self.high_watermark = min(self.high_watermark, self.log.truncate_to(offset))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything: the leader has nothing below ``offset`` any more.

        :raise OSError: the device fails.
        """
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset
