"""Requests log offsets from the leaders of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kreplica.admin.cluster_state.published_metadata import BrokerConnections, PublishedMetadata
from kreplica.client.errors import ClientError
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.runtime.gather import gather
from kreplica.wire.messages import LIST_OFFSETS

EARLIEST, LATEST = -2, -1
"""Timestamps in ListOffsets that mean the start and the end of the log."""

CONSUMER = -1
PER_REQUEST_MAX = 1000
REQUEST_TIMEOUT_S = 5.0

READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"
ISOLATIONS = {READ_UNCOMMITTED: 0, READ_COMMITTED: 1}


@dataclass(slots=True)
class Offsets:
    """Offsets of partitions.

    :ivar found: by partition, from the leaders that responded.
    :ivar problems: a sentence for each partition without an offset.
    """

    found: dict[TopicPartition, int] = field(default_factory=dict)
    problems: dict[TopicPartition, str] = field(default_factory=dict)


class Leaders:
    """Finds leaders and sends requests to them.

    :param connections: separate connections for reading and writing records, because these requests may be slow.
    """

    def __init__(self, published: PublishedMetadata, connections: BrokerConnections) -> None:
        self.published = published
        self.connections = connections

    def leader_of(self, key: TopicPartition) -> int | None:
        """Return the live leader of a partition, if any."""
        topic = self.published.topics.get(key.topic)
        partition = topic.partitions.get(key.partition) if topic is not None else None
        if partition is None or partition.leader not in self.published.brokers:
            return None
        return partition.leader

    def by_leader(self, keys: Iterable[TopicPartition], problems: dict[TopicPartition, str]) -> dict[int, list[Any]]:
        """Group partitions by leader; partitions without one are added to ``problems``."""
        found: dict[int, list[TopicPartition]] = {}
        for key in keys:
            leader = self.leader_of(key)
            if leader is None:
                problems[key] = f"{key} has no leader"
            else:
                found.setdefault(leader, []).append(key)
        return dict(sorted(found.items()))

    async def offsets(self, timestamps: Mapping[TopicPartition, int], isolation: int = 0) -> Offsets:
        """Return the first offset at or after a time, or the log's start or end (``EARLIEST``, ``LATEST``).

        The offset is -1 for a time after the last record.

        :param timestamps: by partition, in milliseconds since 1970.
        """
        result = Offsets()
        requests = []
        for leader, keys in self.by_leader(timestamps, result.problems).items():
            for start in range(0, len(keys), PER_REQUEST_MAX):
                part = {key: timestamps[key] for key in keys[start : start + PER_REQUEST_MAX]}
                requests.append(self._query_leader(leader, part, isolation, result))
        await gather(requests)
        return result

    async def _query_leader(
        self, leader: int, timestamps: Mapping[TopicPartition, int], isolation: int, result: Offsets
    ) -> None:
        body = {
            "replica_id": CONSUMER,
            "isolation_level": isolation,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": key.partition, "current_leader_epoch": -1, "timestamp": timestamps[key]}
                        for key in keys
                    ],
                }
                for name, keys in by_topic(timestamps).items()
            ],
        }
        try:
            response = await self.connections.request(leader, LIST_OFFSETS, body, timeout_s=REQUEST_TIMEOUT_S)
        except ClientError as error:
            result.problems.update(dict.fromkeys(timestamps, f"broker {leader} does not respond: {error}"))
            return
        for topic in response["topics"]:
            for row in topic["partitions"]:
                key = TopicPartition(topic["name"], row["partition_index"])
                if row["error_code"]:
                    code = ErrorCode.of(row["error_code"])
                    result.problems[key] = f"broker {leader} returned {code.name} for {key}"
                else:
                    result.found[key] = row["offset"]


def by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Group partitions by topic, in order."""
    topics: dict[str, list[TopicPartition]] = {}
    for key in keys:
        topics.setdefault(key.topic, []).append(key)
    return topics


def problem_texts(problems: Mapping[TopicPartition, str]) -> Sequence[str]:
    """Return the distinct problems, in the order of partitions; at most a hundred."""
    return list(dict.fromkeys(problems[key] for key in sorted(problems)))[:100]
