"""One partition as this broker holds it: its role, its log, and what is committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_EPOCH, NO_LEADER, ZERO_UUID, TopicPartition
from kreplica.replication.high_watermark import advance, required
from kreplica.replication.waiting import Wakeups, Watcher
from kreplica.runtime.disk import Buffer
from kreplica.storage.log import Log
from kreplica.storage.results import AppendResult, LogSlice


class Role(Enum):
    """STOPPED: the broker was told nothing yet, or to stop.  OFFLINE: its log directory failed."""

    STOPPED = "stopped"
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class Leadership:
    """What LeaderAndIsr says of one partition.

    :param eligible: replicas outside the in-sync set that may still lead (KIP-966): while there are any, nothing more
        is committed.
    :param read_only: the partition is being removed: it takes no more records.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    controller_epoch: int
    topic_id: UUID = ZERO_UUID
    is_new: bool = False
    adding: tuple[int, ...] = field(default=())
    removing: tuple[int, ...] = field(default=())
    eligible: tuple[int, ...] = field(default=())
    read_only: bool = False


NOT_LED = Leadership(NO_LEADER, NO_EPOCH, (), (), 0, 0)

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class Partition:
    """Owned by ``Partitions``.  Every method is a plain call: what must wait, waits in ``waiting``.

    :param min_insync_replicas: of the topic; set again when its settings change.
    """

    __slots__ = (
        "_broker_id",
        "_wakeups",
        "high_watermark",
        "leadership",
        "log",
        "min_insync_replicas",
        "role",
        "topic_id",
        "topic_partition",
        "waiting",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        broker_id: int,
        wakeups: Wakeups,
        *,
        high_watermark: int,
        min_insync_replicas: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.role = Role.STOPPED
        self.leadership = NOT_LED
        self.waiting: dict[Watcher, None] = {}
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.min_insync_replicas = min_insync_replicas
        self._broker_id = broker_id
        self._wakeups = wakeups

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} {self.role.value} epoch {self.leadership.leader_epoch}>"

    # --- roles -------------------------------------------------------------------------------------------------------

    def lead(self, leadership: Leadership) -> None:
        """Become (or stay) the leader in a new epoch: its start is the log's end."""
        self.leadership = leadership
        self.role = Role.LEADER
        self.log.begin_leader_epoch(leadership.leader_epoch)
        self._advance()
        self._wakeups.mark(self)

    def follow(self, leadership: Leadership) -> None:
        """Stop leading; whoever waits is told that the leader is another."""
        self.leadership = leadership
        self.role = Role.FOLLOWER
        self._wakeups.mark(self)

    def stop(self) -> None:
        """Serve nothing any more; whoever waits is told."""
        self.role = Role.STOPPED
        self._wakeups.mark(self)

    def go_offline(self) -> None:
        """The log directory failed: nothing can be read or written here."""
        self.role = Role.OFFLINE
        self._wakeups.mark(self)

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Whether this broker may answer for the partition (KIP-320).

        :param current_leader_epoch: the epoch the client knows; -1 is not checked.
        :raise KafkaError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        """
        if self.role is not Role.LEADER:
            if self.role is Role.OFFLINE:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the directory of {self.topic_partition} is offline")
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leadership.leader_epoch:
            if current_leader_epoch < self.leadership.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # --- data --------------------------------------------------------------------------------------------------------

    def append(self, records: Buffer, now_ms: int, *, all_in_sync: bool) -> AppendResult:
        """Append one batch of a client as the leader.

        :param all_in_sync: whether the client wants all in-sync replicas to have it (``acks=all``).
        :raise KafkaError: whatever is wrong with the batch or with the role; nothing was appended.
        """
        self.check_leader()
        if all_in_sync and len(self.leadership.isr) < self.min_insync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.leadership.isr)} replicas of {self.topic_partition} are in sync, "
                f"{self.min_insync_replicas} are required",
            )
        result = self.log.append_as_leader(records, self.leadership.leader_epoch, now_ms=now_ms)
        self._advance()
        return result

    def read(self, offset: int, size_max: int, *, isolation: int, at_least_one: bool) -> LogSlice:
        """Whole batches from the one that holds ``offset``, as far as a consumer may see.

        :raise KafkaError: OFFSET_OUT_OF_RANGE below the log's start or beyond its end; between the high watermark and
            the end the answer is empty (the high watermark may be on its way).
        """
        return self.log.read(
            offset, size_max=size_max, offset_max=self.visible_end(isolation), at_least_one=at_least_one
        )

    def visible_end(self, isolation: int) -> int:
        """The first offset that a consumer may not see yet."""
        if isolation == READ_COMMITTED:
            return self.log.last_stable_offset(self.high_watermark)
        return self.high_watermark

    def delete_records(self, offset: int) -> int:
        """Move the log's start; -1 is the high watermark.

        :return: the log's start afterwards.
        :raise KafkaError: OFFSET_OUT_OF_RANGE beyond the high watermark.
        """
        self.check_leader()
        if offset == -1:
            offset = self.high_watermark
        if offset < 0 or offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is not between 0 and the high watermark {self.high_watermark} of {self.topic_partition}",
            )
        self.log.advance_log_start_offset(offset)
        return self.log.log_start_offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Where a leader epoch ended here (KIP-101, KIP-279): the largest known epoch up to it, and its end.

        The running epoch ends at the log's end; (-1, -1) where the epoch lies above all.
        """
        return self.log.leader_epochs.end_offset_for(epoch, self.log.log_end_offset)

    def is_committed(self, offset: int) -> bool:
        """Whether all records below ``offset`` are committed."""
        return self.high_watermark >= offset

    # --- what counts -------------------------------------------------------------------------------------------------

    @property
    def end_offset_that_counts(self) -> int:
        """The end of what this replica may say that it has: with ``flush.messages=1`` only what is synced."""
        log = self.log
        return log.recovery_point if log.config.flush_messages <= 1 else log.log_end_offset

    def is_kept(self, offset: int) -> bool:
        """Whether this replica has all records below ``offset`` as safely as the topic asks for."""
        return self.end_offset_that_counts >= offset

    def end_moved(self) -> None:
        """More of the log counts now, by a sync or by the topic's settings."""
        if self.role is Role.LEADER:
            self._advance()
        self._wakeups.mark(self)

    def _advance(self) -> None:
        leadership = self.leadership
        if len(leadership.isr) > 1:
            # Other replicas count too: what they have is known from their fetches.
            return
        new = advance(
            self.high_watermark,
            (self.end_offset_that_counts,),
            in_sync_count=len(leadership.isr),
            in_sync_required=required(self.min_insync_replicas, len(leadership.replicas)),
        )
        if new != self.high_watermark:
            self.high_watermark = new
            if self.waiting:
                self._wakeups.mark(self)
