"""ListOffsets (key 2): returns the earliest or latest offset, or the first one at or after a time."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.runtime.slices import Steps
from kreplica.server.fetch.partition_reads import CONSUMER, DEBUG_CONSUMER
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices
from kreplica.storage.log.timestamp_search import EARLIEST, EARLIEST_LOCAL, LATEST, offset_for_timestamp

LATEST_TIERED = -5

ROWS_PER_STEP = 5
"""Partitions per step; few, because a search by time may read from disk."""

SEGMENTS_VERSION = 0
"""The version that returns starts of segments instead of one offset."""

OFFSET_NOT_AVAILABLE_FROM = 5
"""First version with OFFSET_NOT_AVAILABLE; older clients get LEADER_NOT_AVAILABLE (KIP-207)."""

Row = dict[str, Any]


class ListOffsets:
    """Handles ListOffsets without tiered storage: the earliest local offset is the earliest offset.

    The latest tiered offset is -1.
    """

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def __call__(self, request: Request) -> None:
        body = request.body
        replica_id, isolation = body["replica_id"], body.get("isolation_level", 0)
        if replica_id >= 0:
            request.connection.mark_control()
        respond_in_slices(request, self._response(request, replica_id, isolation))

    def _response(self, request: Request, replica_id: int, isolation: int) -> Steps[Row]:
        topics, count = [], 0
        for topic in request.body["topics"]:
            name, rows = topic["name"], []
            for row in topic["partitions"]:
                key = TopicPartition(name, row["partition_index"])
                rows.append(self._row(key, row, replica_id, isolation, request.version))
                count += 1
                if count % ROWS_PER_STEP == 0:
                    yield
            topics.append({"name": name, "partitions": rows})
        return {"topics": topics}

    def _row(self, key: TopicPartition, requested: Row, replica_id: int, isolation: int, version: int) -> Row:
        row: Row = {"partition_index": key.partition, "error_code": 0}
        epoch = requested.get("current_leader_epoch", NO_EPOCH)
        try:
            is_debug = replica_id == DEBUG_CONSUMER
            partition = self._local_replica(key, epoch) if is_debug else self._partitions.led_partition(key, epoch)
            if version == SEGMENTS_VERSION:
                end = partition.visible_end(isolation) if replica_id == CONSUMER else partition.log.log_end_offset
                return row | {"old_style_offsets": _segment_offsets(partition, requested, end)}
            if replica_id == CONSUMER:
                timestamp, offset, epoch = _find_committed(partition, requested["timestamp"], isolation)
            else:
                timestamp, offset, epoch = _find(partition, requested["timestamp"], partition.log.log_end_offset)
        except KafkaError as error:
            code = error.code
            if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_FROM:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            return row | {
                "error_code": int(code), "timestamp": -1, "offset": -1, "leader_epoch": -1, "old_style_offsets": [],
            }  # fmt: skip
        return row | {"timestamp": timestamp, "offset": offset, "leader_epoch": epoch}

    def _local_replica(self, key: TopicPartition, current_leader_epoch: int) -> Partition:
        """Return the partition if this broker is its leader or follower."""
        partition = self._partitions.get(key)
        if partition is None:
            raise self._partitions.unknown_partition_error(key)
        partition.check_replica(current_leader_epoch)
        return partition


def _segment_offsets(partition: Partition, requested: Row, end: int) -> list[int]:
    """Return the start offsets of segments and the end of the log, latest first, as Kafka did before 0.10.1.

    Kafka compares the requested time with the time at which a segment's file was last written; kreplica compares it
    with the segment's largest timestamp, which does not change when a replica is copied.

    :param end: the largest offset that may be returned.
    """
    log, timestamp = partition.log, requested["timestamp"]
    starts = [(max(segment.base_offset, log.log_start_offset), segment) for segment in log.segments]
    offsets = [offset for offset, _ in starts]
    if timestamp == LATEST:
        if log.segments.active.size:
            offsets.append(log.log_end_offset)
    elif timestamp == EARLIEST:
        del offsets[1:]
    else:
        try:
            older = [number for number, (_, segment) in enumerate(starts, 1) if segment.largest[0] <= timestamp]
        except (OSError, StorageError) as error:
            raise partition.read_failed(log.log_start_offset, error) from error
        del offsets[older[-1] if older else 0 :]
    latest_first = offsets[::-1][: max(requested["max_num_offsets"], 0)]
    if latest_first and latest_first[0] > end:
        return [end, *(offset for offset in latest_first if offset <= end)]
    return latest_first


def _find_committed(partition: Partition, timestamp: int, isolation: int) -> tuple[int, int, int]:
    """Return timestamp, offset and leader epoch for a consumer; the offset is never beyond the high watermark.

    The high watermark of a new leader lags until its followers have fetched. Until it reaches the start of the epoch,
    the end offset is not reliable, because consumers may have seen a later end offset before (KIP-207).
    """
    end = partition.visible_end(isolation)
    has_caught_up = partition.high_watermark >= partition.role.epoch_start_offset
    if has_caught_up or timestamp in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED):
        return _find(partition, timestamp, end)
    found = _find(partition, timestamp, end)
    if timestamp == LATEST or found[1] < 0:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"the high watermark {partition.high_watermark} of {partition.topic_partition} has not caught up with the "
            f"start of epoch {partition.leadership.leader_epoch}",
        )
    return found


def _find(partition: Partition, timestamp: int, end: int) -> tuple[int, int, int]:
    """Return timestamp, offset and leader epoch; -1 for all if no record is found.

    :param end: offset from which records are ignored.
    :raise KafkaError: INVALID_REQUEST for an unknown negative timestamp; CORRUPT_MESSAGE.
    """
    if timestamp == LATEST:
        return -1, end, partition.leadership.leader_epoch
    if timestamp == LATEST_TIERED:
        return -1, -1, -1
    if timestamp < EARLIEST_LOCAL:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown negative timestamp {timestamp}")
    try:
        return offset_for_timestamp(partition.log, timestamp, end) or (-1, -1, -1)
    except (OSError, StorageError) as error:
        raise partition.read_failed(partition.log.log_start_offset, error) from error
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{partition.topic_partition}: {error}") from error
