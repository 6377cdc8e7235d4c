"""State of a partition that this broker follows, in one leader epoch: its fetch position and the handling of responses.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import ZERO_UUID
from kreplica.replication.follower import truncation
from kreplica.replication.partition import Partition

log = Logger()

NOT_REQUESTED = -1

WARNED_FAILURES = 6
"""Consecutive transient failures after which a warning is logged."""

_TRANSIENT = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Errors that occur because the leader and this broker learn of a change at different times."""

_NO_DIVERGENCE = {"epoch": -1, "end_offset": -1}

Row = dict[str, Any]


class NextStep(Enum):
    """Next step for a partition after a response."""

    NOTHING = "its position is unchanged"
    FETCH = "fetch from its new position"
    LATER = "fetch again after a backoff"
    FIND_RANGE = "look up the leader's offset range"


class FollowerState:
    """State of the follower role in one leader epoch; replaced in the next one.

    :ivar last_request_number: number of the last request that contained the partition.
    :ivar failures: number of consecutive failures.
    :ivar in_sync: True if it had all committed records according to the leader's last response.
    """

    __slots__ = (
        "_bytes_max",
        "_requested_offset",
        "failures",
        "in_sync",
        "key",
        "last_request_number",
        "leader_epoch",
        "partition",
        "topic_id",
    )

    def __init__(self, partition: Partition, bytes_max: int) -> None:
        self.partition = partition
        self.key = partition.topic_partition
        self.topic_id = partition.topic_id
        self.leader_epoch = partition.leadership.leader_epoch
        self.last_request_number = NOT_REQUESTED
        self.failures = 0
        self.in_sync = False
        self._requested_offset = NOT_REQUESTED
        self._bytes_max = bytes_max

    # --- requests ----------------------------------------------------------------------------------------------------

    def prepare(self) -> bool:
        """Before the first fetch, truncate records that cannot be compared with the leader's log.

        :return: False if the truncation failed.
        """
        log_ = self.partition.log
        # Remove epochs without records: they would claim offsets that the leader wrote in older epochs.
        log_.leader_epochs.truncate_to(log_.log_end_offset)
        end_offset, epochs = log_.log_end_offset, log_.leader_epochs.entries
        possible_end_offset = truncation.end_of_possible_history(
            epochs, leader_epoch=self.leader_epoch, log_end_offset=end_offset
        )
        if possible_end_offset < end_offset:
            why = f"epoch {epochs[-1].epoch} is later than the leader's, so the log is damaged"
            return self._attempt(lambda: self._truncate(possible_end_offset, why))
        cut = truncation.end_of_known_history(
            epochs, log_end_offset=end_offset, high_watermark=self.partition.high_watermark
        )
        return cut == end_offset or self._attempt(lambda: self._truncate(cut, "its leader epochs are unknown"))

    @property
    def may_acknowledge(self) -> bool:
        """True if all records before the next fetch offset are as durable here as the topic requires."""
        return self.partition.is_durable(self.partition.log.log_end_offset)

    def request_row(self) -> Row:
        """Return the current position as a Fetch row."""
        fetch_offset, last_epoch, log_start_offset = self.position()
        return {
            "partition": self.key.partition,
            "current_leader_epoch": self.leader_epoch,
            "fetch_offset": fetch_offset,
            "last_fetched_epoch": last_epoch,
            "log_start_offset": log_start_offset,
            "partition_max_bytes": self._bytes_max,
            "replica_directory_id": ZERO_UUID,
        }

    def position(self) -> tuple[int, int, int]:
        """Return the fetch offset, the leader epoch of the last record, and the log start offset."""
        partition = self.partition
        end_offset, last_epoch = partition.fetch_position()
        self._requested_offset = end_offset
        return end_offset, last_epoch, partition.log.log_start_offset

    def accepts_response_to(self, number: int) -> bool:
        """True if the response to this request still matches the partition's state.

        :param number: number of the request.
        """
        partition = self.partition
        return (
            partition.role.is_follower
            and NOT_REQUESTED < self.last_request_number <= number
            and matches_epoch(self.leader_epoch, partition.leadership.leader_epoch)
            and matches_offset(self._requested_offset, partition.log.log_end_offset)
        )

    # --- responses ---------------------------------------------------------------------------------------------------

    def process_row(self, row: Row, now_ms: int) -> NextStep:
        """Process a response row: records, a diverging epoch or an error. Does not raise."""
        try:
            return self._process_row(row, now_ms)
        except KafkaError as error:
            return self._failed(error)
        except (OSError, StorageError) as error:
            return self._failed(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        except Exception:
            log.failure("processing the leader's response for {partition} failed", partition=str(self.key))
            self.failures += 1
            return NextStep.LATER

    def _process_row(self, row: Row, now_ms: int) -> NextStep:
        if row["error_code"]:
            code = ErrorCode.of(row["error_code"])
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return NextStep.FIND_RANGE
            raise KafkaError(code, "the leader returned this error")
        diverging = row.get("diverging_epoch", _NO_DIVERGENCE)
        if diverging != _NO_DIVERGENCE:
            self._diverged(diverging["epoch"], diverging["end_offset"])
            self.failures = 0
            return NextStep.FETCH
        partition, log_ = self.partition, self.partition.log
        end_offset, start_offset = log_.log_end_offset, log_.log_start_offset
        partition.append_as_follower(
            row["records"] or b"",
            leader_high_watermark=row["high_watermark"],
            leader_log_start_offset=row["log_start_offset"],
            now_ms=now_ms,
        )
        self.failures = 0
        self.in_sync = log_.log_end_offset >= row["high_watermark"]
        # A changed start offset is sent too: DeleteRecords waits for it on the leader (KIP-107).
        is_same = log_.log_end_offset == end_offset and log_.log_start_offset == start_offset
        return NextStep.NOTHING if is_same else NextStep.FETCH

    def _diverged(self, epoch: int, end_offset: int) -> None:
        partition = self.partition
        cut = truncation.truncation_offset(
            epoch,
            end_offset,
            partition.log.leader_epochs.entries,
            log_end_offset=partition.log.log_end_offset,
            high_watermark=partition.high_watermark,
        )
        self._truncate(cut, f"the leader's epoch {epoch} ended at {end_offset}")

    def restart(self, leader_start_offset: int | None, leader_end_offset: int | None) -> NextStep:
        """Handle a fetch offset outside the leader's log.

        :param leader_start_offset: None if the leader returned an error; ``leader_end_offset`` is then also None.
        """
        if leader_start_offset is None or leader_end_offset is None:
            return self._failed(KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "the leader did not return its offset range"))
        partition = self.partition
        found = truncation.restart_out_of_range(
            partition.log.log_end_offset,
            leader_start_offset=leader_start_offset,
            leader_end_offset=leader_end_offset,
        )
        if found is None:
            # The range changed between two responses, or the leader has none of our epochs; back off to avoid a tight
            # loop.
            return self._failed(KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, "the offset is within the leader's range"))
        why = f"the leader has {leader_start_offset} to {leader_end_offset}"
        restart = self._start_at if found.emptied else self._truncate
        done = self._attempt(lambda: restart(found.offset, why))
        return NextStep.FETCH if done else NextStep.LATER

    # --- truncation --------------------------------------------------------------------------------------------------

    def _truncate(self, offset: int, why: str) -> None:
        partition = self.partition
        end_offset, high_watermark = partition.log.log_end_offset, partition.high_watermark
        if truncation.loses_committed_records(offset, high_watermark):
            log.error(
                "{partition}: truncated from {end} to {offset}, below the high watermark {high_watermark}; "
                "committed records that the leader does not have are lost after an unclean election: {why}",
                partition=str(self.key),
                end=end_offset,
                offset=offset,
                high_watermark=high_watermark,
                why=why,
            )
        else:
            log.info(
                "{partition}: truncated from {end} to {offset}: {why}",
                partition=str(self.key),
                end=end_offset,
                offset=offset,
                why=why,
            )
        partition.truncate_to(offset)

    def _start_at(self, offset: int, why: str) -> None:
        partition = self.partition
        log.warn(
            "{partition}: the leader's log no longer has offsets {start} to {end}; restarting at {offset}: {why}",
            partition=str(self.key),
            start=partition.log.log_start_offset,
            end=partition.log.log_end_offset,
            offset=offset,
            why=why,
        )
        partition.truncate_fully_and_start_at(offset)

    def _attempt(self, change: Callable[[], None]) -> bool:
        try:
            change()
        except (KafkaError, OSError, StorageError) as error:
            self._failed(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
            return False
        self.failures = 0
        return True

    def _failed(self, error: KafkaError) -> NextStep:
        self.failures += 1
        if self.failures == (WARNED_FAILURES if error.code in _TRANSIENT else 1):
            log.warn(
                "{partition} cannot follow broker {leader} in epoch {epoch} and will retry: {error}",
                partition=str(self.key),
                leader=self.partition.leadership.leader,
                epoch=self.leader_epoch,
                error=str(error),
            )
        return NextStep.LATER


def matches_epoch(requested: int, current: int) -> bool:
    """True if the request was sent in the current leader epoch."""
    return requested == current


def matches_offset(requested: int, log_end_offset: int) -> bool:
    """True if the response continues the log at its current end."""
    return requested == log_end_offset
