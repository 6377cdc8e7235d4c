"""Bodies of WriteTxnMarkers requests and the meaning of their results. Pure functions."""

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
    """Marker of a transaction in one partition."""

    producer_id: int
    key: TopicPartition


class MarkerOutcome(Enum):
    """Meaning of the result for one marker.

    WRITTEN: the partition has the marker or does not need it. RETRY: try again later. FENCED: a later coordinator ends
    the transaction.
    """

    WRITTEN = "written"
    RETRY = "retry"
    FENCED = "fenced"


OUTCOMES: Mapping[ErrorCode, MarkerOutcome] = {
    ErrorCode.NONE: MarkerOutcome.WRITTEN,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: MarkerOutcome.FENCED,
    # The partition has a later epoch of the producer, which is granted only when this transaction is complete.
    ErrorCode.INVALID_PRODUCER_EPOCH: MarkerOutcome.WRITTEN,
    # The partition can never store a marker.
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: MarkerOutcome.WRITTEN,
}
"""All other codes mean RETRY, because leaders and in-sync replicas change."""


def outcome_of(code: ErrorCode) -> MarkerOutcome:
    """Return the meaning of the error code of one partition."""
    return OUTCOMES.get(code, MarkerOutcome.RETRY)


def markers_body(endings: Iterable[tuple[Transaction, int, frozenset[TopicPartition]]]) -> dict[str, Any]:
    """Return the body of a request.

    :param endings: decided transactions, with the coordinator's epoch and the partitions in this request.
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
    """Return the error codes in a response, by marker."""
    return {
        Marker(each["producer_id"], TopicPartition(topic["name"], partition["partition_index"])): ErrorCode.of(
            partition["error_code"]
        )
        for each in body["markers"]
        for topic in each["topics"]
        for partition in topic["partitions"]
    }


def is_missing(view: ClusterView, key: TopicPartition) -> bool:
    """Return True if a partition does not exist according to the metadata; False if there is no metadata yet."""
    if view.partition_count(TRANSACTION_STATE) is None:
        return False
    count = view.partition_count(key.topic)
    return count is None or key.partition >= count
