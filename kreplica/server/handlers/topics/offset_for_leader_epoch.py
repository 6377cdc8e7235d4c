"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, which followers and clients use to detect
truncation."""

from __future__ import annotations

from typing import Any

from kreplica.errors import KafkaError
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.replication import Partitions
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices

NO_REPLICA = -2
"""Replica ID in versions without the field; clients send -1."""


class OffsetForLeaderEpoch:
    """Responds only for partitions that this broker leads (KIP-320): a follower's log may still be truncated."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def __call__(self, request: Request) -> None:
        if request.body.get("replica_id", NO_REPLICA) >= 0:
            request.connection.mark_control()  # a follower that uses this API to truncate, as before Fetch 12
        respond_in_slices(request, self._response(request.body))

    def _response(self, body: dict[str, Any]) -> Steps[dict[str, Any]]:
        topics, count = [], 0
        for topic in body["topics"]:
            name, rows = topic["topic"], []
            for row in topic["partitions"]:
                rows.append(self._row(TopicPartition(name, row["partition"]), row))
                count += 1
                if count % STEP_ROWS == 0:
                    yield
            topics.append({"topic": name, "partitions": rows})
        return {"topics": topics}

    def _row(self, key: TopicPartition, requested: dict[str, Any]) -> dict[str, Any]:
        row = {"error_code": 0, "partition": key.partition, "leader_epoch": -1, "end_offset": -1}
        try:
            partition = self._partitions.led_partition(key, requested.get("current_leader_epoch", NO_EPOCH))
        except KafkaError as error:
            return row | {"error_code": int(error.code)}
        epoch, end_offset = partition.end_offset_for_epoch(requested["leader_epoch"])
        return row | {"leader_epoch": epoch, "end_offset": end_offset}
