"""Log directories of brokers and moves of replicas between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.admin.request_routing import UNKNOWN, RequestRouter, Results, outcome
from kreplica.client_core.cluster import BrokerConnection
from kreplica.client_core.errors import ClientError, check
from kreplica.client_core.offsets import topic_rows
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.wire.messages import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS

NOT_ON_BROKER = UNKNOWN | {ErrorCode.REPLICA_NOT_AVAILABLE}
"""Error codes for a replica that the broker does not have yet; it will be created in the requested directory."""


class Replica(NamedTuple):
    """A replica of a partition on one broker."""

    partition: TopicPartition
    broker_id: int


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """Size of a replica in a log directory.

    :param offset_lag: number of offsets behind the high watermark or, for a future replica, behind the current replica.
    :param is_future: True if the replica is being moved to this directory.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker.

    :param error: the error if the directory is unusable; otherwise None.
    :param replicas: replicas by partition.
    :param total_bytes: size of the file system; -1 if not in the response.
    :param usable_bytes: free space of the file system; -1 if not in the response.
    """

    path: str
    error: ClientError | None
    replicas: Mapping[TopicPartition, ReplicaSize]
    total_bytes: int = -1
    usable_bytes: int = -1


class LogDirs(RequestRouter):
    """Requests for log directories."""

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_s: float | None = None,
    ) -> Outcomes[int, tuple[LogDir, ...]]:
        """Describe the log directories of brokers.

        :param brokers: ids of brokers; None means all live brokers.
        :param partitions: partitions to include; None includes all.
        """
        topics = None
        if partitions is not None:
            rows = topic_rows(partitions, lambda each: each.partition, "partitions")
            topics = [{"topic": row["name"], "partitions": row["partitions"]} for row in rows]

        async def send(connection: BrokerConnection) -> tuple[LogDir, ...]:
            response = await self._cluster.request(connection, DESCRIBE_LOG_DIRS, {"topics": topics})
            if response.get("error_code"):
                check(response, f"log directories of {connection.peer}")
            return tuple(_log_dir(row) for row in response["results"])

        return await self.at_brokers(brokers, send, timeout_s)

    async def alter_replica_log_dirs(
        self, paths: Mapping[Replica, str], *, timeout_s: float | None = None
    ) -> Outcomes[Replica, None]:
        """Start moving replicas to other directories of their brokers; return before the moves complete.

        A replica that its broker does not have yet will be created in that directory (KIP-113).

        :param paths: target directories.
        """

        async def send(connection: BrokerConnection, share: list[Replica]) -> Results[Replica, None]:
            broker_id, dirs = share[0].broker_id, []
            for path in sorted({paths[each] for each in share}):
                moved = [each.partition for each in share if paths[each] == path]
                dirs.append({"path": path, "topics": topic_rows(moved, lambda each: each.partition, "partitions")})
            response = await self._cluster.request(connection, ALTER_REPLICA_LOG_DIRS, {"dirs": dirs})
            results: dict[Replica, ClientError | None] = {}
            for topic in response["results"]:
                for row in topic["partitions"]:
                    partition = TopicPartition(topic["topic_name"], row["partition_index"])
                    results[Replica(partition, broker_id)] = outcome(row, f"log directory of {partition}")
            return results

        async def attempt(remaining: list[Replica]) -> Results[Replica, None]:
            if any(each.broker_id not in self._cluster.view.brokers for each in remaining):
                await self._cluster.refresh()
            targets = {each: each.broker_id for each in remaining}
            return await self._send_each(targets, self._cluster.connection, send)

        return await self.settle(paths, attempt, timeout_s, final=NOT_ON_BROKER)


def _log_dir(row: dict[str, Any]) -> LogDir:
    replicas = {
        TopicPartition(topic["name"], each["partition_index"]): ReplicaSize(
            each["partition_size"], each["offset_lag"], each["is_future_key"]
        )
        for topic in row["topics"]
        for each in topic["partitions"]
    }
    error = outcome(row, f"log directory {row['log_dir']}")
    return LogDir(row["log_dir"], error, replicas, row.get("total_bytes", -1), row.get("usable_bytes", -1))
