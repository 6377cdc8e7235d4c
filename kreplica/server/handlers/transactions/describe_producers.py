"""DescribeProducers (key 61): describes active producers and open transactions of partitions (KIP-664)."""

from __future__ import annotations

from typing import Any

from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_with_result
from kreplica.storage.producers.producer_entry import ProducerEntry

Row = dict[str, Any]


class DescribeProducers:
    """Responds for every local replica, because tools look for hanging transactions on each replica."""

    def __init__(self, reactor: Reactor, partitions: Partitions) -> None:
        self._reactor = reactor
        self._partitions = partitions

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._describe(request.body["topics"]))

    async def _describe(self, topics: list[Row]) -> Row:
        time_slice = TimeSlice(self._reactor)
        responses = []
        for topic in topics:
            rows = []
            for number in topic["partition_indexes"]:
                rows.append(await self._describe_one(TopicPartition(topic["name"], number), time_slice))
            responses.append({"name": topic["name"], "partitions": rows})
        return {"topics": responses}

    async def _describe_one(self, key: TopicPartition, time_slice: TimeSlice) -> Row:
        row: Row = {"partition_index": key.partition, "error_code": 0, "active_producers": []}
        try:
            entries = list(self._replica(key).log.producers.entries)
        except KafkaError as error:
            return row | {"error_code": int(error.code), "error_message": error.message or None}
        for entry in sorted(entries, key=lambda entry: entry.producer_id):
            row["active_producers"].append(_producer(entry))
            if time_slice.is_over:
                await time_slice.next()
        return row

    def _replica(self, key: TopicPartition) -> Partition:
        partition = self._partitions.get(key)
        if partition is None:
            raise self._partitions.unknown_partition_error(key)
        partition.check_replica()
        return partition


def _producer(entry: ProducerEntry) -> Row:
    return {
        "producer_id": entry.producer_id,
        "producer_epoch": entry.epoch,
        "last_sequence": entry.last_sequence,
        "last_timestamp": entry.timestamp_ms,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_start_offset": entry.transaction_first_offset,
    }
