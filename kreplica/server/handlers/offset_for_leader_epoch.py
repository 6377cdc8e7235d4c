"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, so that clients and followers find where to cut."""

from __future__ import annotations

from typing import Any

from kreplica.errors import KafkaError
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.replication import Partitions
from kreplica.server.request import Request

NO_REPLICA = -2
"""Who asks is no follower, or its version does not say."""


class OffsetForLeaderEpoch:
    """The leader alone knows (KIP-320): a follower's own history may still be cut."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def __call__(self, request: Request) -> None:
        if request.body.get("replica_id", NO_REPLICA) >= 0:
            request.connection.mark_control()  # a follower that truncates by this, as those before Fetch 12 do
        request.answer(
            {
                "topics": [
                    {
                        "topic": topic["topic"],
                        "partitions": [
                            self._row(TopicPartition(topic["topic"], row["partition"]), row)
                            for row in topic["partitions"]
                        ],
                    }
                    for topic in request.body["topics"]
                ]
            }
        )

    def _row(self, key: TopicPartition, asked: dict[str, Any]) -> dict[str, Any]:
        row = {"error_code": 0, "partition": key.partition, "leader_epoch": -1, "end_offset": -1}
        try:
            partition = self._partitions.led(key, asked.get("current_leader_epoch", NO_EPOCH))
        except KafkaError as error:
            return row | {"error_code": int(error.code)}
        epoch, end_offset = partition.end_offset_for_epoch(asked["leader_epoch"])
        return row | {"leader_epoch": epoch, "end_offset": end_offset}
