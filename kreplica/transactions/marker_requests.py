"""WriteTxnMarkers as its sender sees it: the bodies, and what is to be done after each answer.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from kreplica.cluster.topic_names import TRANSACTION_STATE
from kreplica.coordination import ClusterView
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.transactions.records import by_topic
from kreplica.transactions.states import Transaction


class Marker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    producer_id: int
    key: TopicPartition


class Verdict(Enum):
    """WRITTEN: the partition has it, or needs it no more.  LATER: it may do better.  FENCED: another coordinator has
    been there, and ends the transaction."""

    WRITTEN = "written"
    LATER = "later"
    FENCED = "fenced"


VERDICTS: Mapping[ErrorCode, Verdict] = {
    ErrorCode.NONE: Verdict.WRITTEN,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Verdict.FENCED,
    # The partition has heard of a later epoch of the producer, which it can only have got once this one was complete.
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.WRITTEN,
    # It can never be written there.
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Verdict.WRITTEN,
}
"""All other codes are LATER: leaders move, replicas fall out of sync and come back."""


def verdict_of(code: ErrorCode) -> Verdict:
    """What an answer for one partition means."""
    return VERDICTS.get(code, Verdict.LATER)


def markers_body(endings: Iterable[tuple[Transaction, int, frozenset[TopicPartition]]]) -> dict[str, Any]:
    """The body of a request.

    :param endings: decided transactions, each with its coordinator's epoch and the partitions that this request ends.
    """
    return {
        "markers": [
            {
                "producer_id": transaction.producer_id,
                "producer_epoch": transaction.producer_epoch,
                "transaction_result": transaction.is_committed,
                "topics": [
                    {"name": topic, "partition_indexes": numbers} for topic, numbers in by_topic(partitions).items()
                ],
                "coordinator_epoch": coordinator_epoch,
                "transaction_version": transaction.client_version,
            }
            for transaction, coordinator_epoch, partitions in endings
        ]
    }


def codes_of(body: Mapping[str, Any]) -> dict[Marker, ErrorCode]:
    """What an answer says of each marker."""
    return {
        Marker(each["producer_id"], TopicPartition(topic["name"], partition["partition_index"])): ErrorCode.of(
            partition["error_code"]
        )
        for each in body["markers"]
        for topic in each["topics"]
        for partition in topic["partitions"]
    }


def is_missing(view: ClusterView, key: TopicPartition) -> bool:
    """Whether a partition is not there, as far as this broker knows: a broker that knows of nothing yet cannot tell."""
    if view.partition_count(TRANSACTION_STATE) is None:
        return False
    count = view.partition_count(key.topic)
    return count is None or key.partition >= count
