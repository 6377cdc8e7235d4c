"""AlterReplicaLogDirs (key 34): rejects moves of replicas between log directories."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.replication import Partitions
from kreplica.server.protocol.request import Request

Row = dict[str, Any]


class AlterReplicaLogDirs:
    """Confirms a replica's current directory, with Kafka's error codes, and rejects a move to another one."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def __call__(self, request: Request) -> None:
        results: dict[str, list[Row]] = defaultdict(list)
        for directory in request.body["dirs"]:
            for topic in directory["topics"]:
                for index in topic["partitions"]:
                    code = self._code(directory["path"], TopicPartition(topic["name"], index))
                    results[topic["name"]].append({"partition_index": index, "error_code": int(code)})
        rows = [{"topic_name": topic, "partitions": partitions} for topic, partitions in results.items()]
        request.respond({"results": rows})

    def _code(self, path: str, key: TopicPartition) -> ErrorCode:
        directory = next((each for each in self._partitions.directories.directories if each.path == path), None)
        if directory is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if directory.offline is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if key in directory.logs:
            return ErrorCode.NONE
        if self._partitions.get(key) is None:
            # Kafka's code for a future replica: kafka-reassign-partitions sends this request before the move too.
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return ErrorCode.UNSUPPORTED_VERSION
