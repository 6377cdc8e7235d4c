"""Writes one record to a topic with acks=all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from kreplica.admin.cluster_state.published_metadata import PublishedTopic
from kreplica.admin.http.problems import Problem
from kreplica.admin.peers.leaders import Leaders
from kreplica.client.errors import ClientError, ConnectionFailed, TooManyRequests, UnsupportedVersion
from kreplica.cluster.topic_names import INTERNAL_TOPICS
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.wire.batch_building import build_batch
from kreplica.wire.messages import PRODUCE
from kreplica.wire.partitioning import partition_of_key
from kreplica.wire.records import Headers, Record

PRODUCE_TIMEOUT_S = 10.0
LEADER_SECONDS_MAX = 5.0
RETRY_DELAY_S = 0.1
ALL_IN_SYNC = -1

_NOTHING_SENT = (ConnectionFailed, TooManyRequests, UnsupportedVersion)
_NOT_APPENDED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)


class MessageWriter:
    """Writes single records; retries only if it is certain that the record was not written."""

    def __init__(self, runtime: Runtime, leaders: Leaders) -> None:
        self._runtime = runtime
        self._leaders = leaders

    def partition_for(self, topic: PublishedTopic, partition: int | None, key: bytes | None) -> int:
        """Return the requested partition, or the key's partition as in Kafka's Java client, or any partition with a
        leader.

        :raise Problem: 403 for an internal topic; 404 for an unknown partition.
        """
        if topic.name in INTERNAL_TOPICS:
            raise Problem(403, "TOPIC_AUTHORIZATION_FAILED", f"only coordinators can write to {topic.name}")
        numbers: Sequence[int] = sorted(topic.partitions)
        if partition is not None:
            if partition not in topic.partitions:
                detail = f"partition {partition} of {topic.name} does not exist (number of partitions: {len(numbers)})"
                raise Problem(404, "UNKNOWN_TOPIC_OR_PARTITION", detail)
            return partition
        if key is not None:
            return partition_of_key(key, len(numbers))
        leaders = {number: self._leaders.leader_of(TopicPartition(topic.name, number)) for number in numbers}
        with_leader = [number for number, leader in leaders.items() if leader is not None]
        return self._runtime.random.choice(with_leader or numbers)

    async def write(
        self, topic: PublishedTopic, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> tuple[int, int]:
        """Write a record.

        :return: the record's offset, and its time in milliseconds since 1970.
        :raise KafkaError: the partition has no leader, or the leader rejected the record.
        :raise Problem: 503 if it is unknown whether the record was written, or if too few replicas are in sync.
        """
        now_ms = self._runtime.wall_clock_ms()
        batch = build_batch([Record(0, now_ms, key, value, headers)])
        until_s = self._runtime.reactor.seconds() + LEADER_SECONDS_MAX
        while True:
            try:
                offset, append_time_ms = await self._produce(TopicPartition(topic.name, partition), batch)
                return offset, append_time_ms if append_time_ms >= 0 else now_ms
            except (KafkaError, *_NOTHING_SENT) as error:
                can_retry = not isinstance(error, KafkaError) or error.code in _NOT_APPENDED
                if not can_retry or self._runtime.reactor.seconds() >= until_s:
                    raise _with_explanation(error, TopicPartition(topic.name, partition)) from None
            await pause(self._runtime.reactor, RETRY_DELAY_S)

    async def _produce(self, key: TopicPartition, batch: bytes) -> tuple[int, int]:
        leader = self._leaders.leader_of(key)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{key} has no leader")
        body = {
            "transactional_id": None,
            "acks": ALL_IN_SYNC,
            "timeout_ms": int(PRODUCE_TIMEOUT_S * 1000),
            "topic_data": [{"name": key.topic, "partition_data": [{"index": key.partition, "records": batch}]}],
        }
        try:
            response = await self._leaders.connections.request(
                leader, PRODUCE, body, timeout_s=PRODUCE_TIMEOUT_S * 2
            )
        except _NOTHING_SENT:
            raise
        except ClientError as error:
            raise Problem(
                503,
                "NETWORK_EXCEPTION",
                f"broker {leader}, which leads {key}, did not respond: {error}",
                what_to_do="The record may have been written: check before you write it again.",
            ) from None
        return _parse_response(response, key)


def _with_explanation(error: Exception, key: TopicPartition) -> Exception:
    """Return a rejection because of missing replicas with a reference to its explanation; other errors unchanged."""
    if not isinstance(error, KafkaError) or error.code is not ErrorCode.NOT_ENOUGH_REPLICAS:
        return error
    why = f"/v1/why/partitions/{quote(key.topic)}/{key.partition}"
    advice = f"GET {why} explains which replicas are missing and what to do."
    return Problem(503, error.code.name, error.message, what_to_do=advice, members={"why": why})


def _parse_response(response: dict[str, Any], key: TopicPartition) -> tuple[int, int]:
    row = response["responses"][0]["partition_responses"][0]
    code = ErrorCode.of(row["error_code"])
    if code is not ErrorCode.NONE:
        why = [each["batch_index_error_message"] for each in row["record_errors"]]
        message = next((text for text in (*why, row["error_message"]) if text), "")
        raise KafkaError(code, f"{key}: {message}" if message else f"the leader of {key} rejected the record")
    return row["base_offset"], row["log_append_time_ms"]
