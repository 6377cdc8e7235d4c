"""DeleteRecords (key 21): move the start of partitions' logs forward."""

from __future__ import annotations

from typing import Any

from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import Partitions
from kreplica.server.request import Request


class DeleteRecords:
    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def __call__(self, request: Request) -> None:
        request.answer(
            {
                "topics": [
                    {
                        "name": topic["name"],
                        "partitions": [self._delete(topic["name"], row) for row in topic["partitions"]],
                    }
                    for topic in request.body["topics"]
                ]
            }
        )

    def _delete(self, topic: str, row: dict[str, Any]) -> dict[str, Any]:
        index = row["partition_index"]
        try:
            partition = self._partitions.led(TopicPartition(topic, index))
            partition.delete_records(row["offset"])
            low_watermark = partition.log.log_start_offset
        except KafkaError as error:
            return {"partition_index": index, "low_watermark": -1, "error_code": int(error.code)}
        return {"partition_index": index, "low_watermark": low_watermark, "error_code": 0}
