"""DescribeLogDirs (key 35): returns the partitions in each log directory and their sizes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.replication import Partitions
from kreplica.runtime.disk import Disk
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import respond_in_slices
from kreplica.storage.directories.log_directory import LogDirectory

Row = dict[str, Any]


class DescribeLogDirs:
    def __init__(self, partitions: Partitions, disk: Disk) -> None:
        self._partitions = partitions
        self._disk = disk

    def __call__(self, request: Request) -> None:
        respond_in_slices(request, self._response(request))

    def _response(self, request: Request) -> Steps[Row]:
        requested = request.body["topics"]
        requested_logs = None
        if requested is not None:
            requested_logs = {
                TopicPartition(topic["topic"], index) for topic in requested for index in topic["partitions"]
            }
        results = []
        for directory in list(self._partitions.directories.directories):
            results.append((yield from self._row(directory, requested_logs)))
        return {"error_code": 0, "results": results}

    def _row(self, directory: LogDirectory, requested_logs: set[TopicPartition] | None) -> Steps[Row]:
        row: Row = {"error_code": 0, "log_dir": directory.path, "topics": []}
        if directory.offline is not None:
            return row | {"error_code": int(ErrorCode.KAFKA_STORAGE_ERROR)}
        topics: dict[str, list[Row]] = defaultdict(list)
        # A request for one of 10,000 logs must not cost a scan of all logs.
        for number, key in enumerate(sorted(directory.logs if requested_logs is None else requested_logs), 1):
            if number % STEP_ROWS == 0:
                yield
            log = directory.logs.get(key)
            if log is not None:
                partition = self._partitions.get(key)
                committed = partition.high_watermark if partition is not None else log.log_end_offset
                topics[key.topic].append(
                    {
                        "partition_index": key.partition,
                        "partition_size": log.segments.size_bytes,
                        "offset_lag": max(committed - log.log_end_offset, 0),
                        "is_future_key": False,
                    }
                )
        row["total_bytes"], row["usable_bytes"] = self._disk.usage(directory.path)
        row["topics"] = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
        return row
