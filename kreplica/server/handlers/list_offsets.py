"""ListOffsets (key 2): the first offset at or after a time, or one of the named places of a log."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode, KafkaError, ProtocolError
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.server.request import Request
from kreplica.storage.search import EARLIEST_LOCAL, LATEST

LATEST_TIERED = -5

Row = dict[str, Any]


class ListOffsets:
    """Tiered storage does not exist here: the earliest local offset is the earliest, and none is tiered."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def __call__(self, request: Request) -> None:
        isolation = request.body.get("isolation_level", 0)
        request.answer(
            {
                "topics": [
                    {
                        "name": topic["name"],
                        "partitions": [
                            self._row(TopicPartition(topic["name"], row["partition_index"]), row, isolation)
                            for row in topic["partitions"]
                        ],
                    }
                    for topic in request.body["topics"]
                ]
            }
        )

    def _row(self, key: TopicPartition, asked: Row, isolation: int) -> Row:
        row: Row = {"partition_index": key.partition, "error_code": 0, "old_style_offsets": []}
        try:
            partition = self._partitions.led(key, asked.get("current_leader_epoch", NO_EPOCH))
            timestamp, offset, epoch = _find(partition, asked["timestamp"], isolation)
        except KafkaError as error:
            return row | {"error_code": int(error.code), "timestamp": -1, "offset": -1, "leader_epoch": -1}
        row |= {"timestamp": timestamp, "offset": offset, "leader_epoch": epoch}
        if offset >= 0:
            row["old_style_offsets"] = [offset]
        return row


def _find(partition: Partition, timestamp: int, isolation: int) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch); all -1 where there is none.

    :raise KafkaError: INVALID_REQUEST, for a negative timestamp that names no place; CORRUPT_MESSAGE.
    """
    end = partition.visible_end(isolation)
    if timestamp == LATEST:
        return -1, end, partition.leadership.leader_epoch
    if timestamp == LATEST_TIERED:
        return -1, -1, -1
    if timestamp < EARLIEST_LOCAL:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the timestamp {timestamp} names no place of a log")
    try:
        return partition.log.offset_for_timestamp(timestamp, end) or (-1, -1, -1)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{partition.topic_partition}: {error}") from error
