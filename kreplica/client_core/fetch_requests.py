"""Fetch requests and their responses, by partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from kreplica.client_core.errors import BrokerRefused, ClientError, OffsetOutOfRange, RecordTooLarge
from kreplica.client_core.fetched_batches import FetchedRecords, Isolation, aborted_transactions_of, next_offset_after
from kreplica.errors import ErrorCode
from kreplica.model import NO_EPOCH, ZERO_UUID, TopicPartition

TOPIC_NAMES_VERSION_MAX = 12
"""Last version of Fetch that identifies topics by name."""

CONSUMER = -1
NO_BROKER = -1
NO_SESSION, NO_SESSION_EPOCH = 0, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """Limits of one Fetch request.

    :param wait_ms: time for which the broker waits for ``size_min`` bytes.
    :param size_max: maximum size of the response; the first batch is returned even if it is larger (KIP-74).
    :param partition_size_max: maximum size of one partition's records in the response.
    :param rack_id: rack of the consumer, so that the leader can name a closer replica (KIP-392).
    """

    isolation: Isolation
    wait_ms: int
    size_min: int
    size_max: int
    partition_size_max: int
    rack_id: str = ""


def grouped_by_topic(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Order partitions so that those of one topic are adjacent; topics keep the order of their first partitions."""
    ordered = list(partitions)
    order = {topic: index for index, topic in reversed(list(enumerate(each.topic for each in ordered)))}
    return sorted(ordered, key=lambda each: order[each.topic])


def fetch_body(
    positions: Mapping[TopicPartition, int],
    limits: FetchLimits,
    leader_epochs: Mapping[TopicPartition, int] | None = None,
) -> dict[str, Any]:
    """Build a Fetch request; the broker serves partitions in the given order.

    :param leader_epochs: the consumer's leader epochs; a broker with a different epoch rejects the fetch (KIP-320).
    """
    epochs = leader_epochs or {}
    # A body that has all fields, even those with default values, is encoded twice as fast.
    topics = [
        {
            "topic": topic,
            "topic_id": ZERO_UUID,
            "partitions": [
                {
                    "partition": each.partition,
                    "current_leader_epoch": epochs.get(each, NO_EPOCH),
                    "fetch_offset": positions[each],
                    "last_fetched_epoch": NO_EPOCH,
                    "log_start_offset": -1,
                    "partition_max_bytes": limits.partition_size_max,
                }
                for each in group
            ],
        }
        for topic, group in groupby(positions, key=lambda each: each.topic)
    ]
    return {
        "cluster_id": None,
        "replica_id": CONSUMER,
        "max_wait_ms": limits.wait_ms,
        "min_bytes": limits.size_min,
        "max_bytes": limits.size_max,
        "isolation_level": int(limits.isolation),
        "session_id": NO_SESSION,
        "session_epoch": NO_SESSION_EPOCH,
        "topics": topics,
        "forgotten_topics_data": [],
        "rack_id": limits.rack_id,
    }


def parse_fetched(
    response: dict[str, Any], positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, FetchedRecords | ClientError]:
    """Parse a Fetch response: records (possibly none) or an error for each requested partition."""
    return dict(iter_fetched(response, positions))


def iter_fetched(
    response: dict[str, Any], positions: Mapping[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, FetchedRecords | ClientError]]:
    """Yield the results of ``parse_fetched`` one by one, because a response may contain many batch headers."""
    code = ErrorCode.of(response.get("error_code", 0))
    if code is not ErrorCode.NONE:
        error = BrokerRefused(code, "fetch")
        yield from dict.fromkeys(positions, error).items()
        return
    for topic in response["responses"]:
        for row in topic["partitions"]:
            partition = TopicPartition(topic["topic"], row["partition_index"])
            if partition in positions:
                yield partition, _parse_row(row, partition, positions[partition])


def _parse_row(row: dict[str, Any], partition: TopicPartition, position: int) -> FetchedRecords | ClientError:
    code = ErrorCode.of(row["error_code"])
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return OffsetOutOfRange(partition, position, row.get("log_start_offset", -1), row["high_watermark"])
    if code is not ErrorCode.NONE:
        return BrokerRefused(code, f"fetch of {partition}")
    data = memoryview(row["records"] or b"")
    try:
        after_last = next_offset_after(data, position, partition)
    except ClientError as error:
        return error
    if len(data) and after_last == position:
        return RecordTooLarge(f"{partition} at offset {position}: a batch is larger than partition_size_max")
    return FetchedRecords(
        partition,
        data,
        position,
        after_last,
        aborted_transactions_of(row),
        row.get("preferred_read_replica", NO_BROKER),
    )
