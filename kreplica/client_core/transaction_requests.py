"""Bodies of a transactional producer's requests (KIP-98), and the errors in their responses."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from kreplica.client_core.errors import BrokerRefused, ClientError, check
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition

# Highest versions to use: later versions are only for brokers, or make brokers add partitions and increment epochs
# (KIP-890).
INIT_MAX, ADD_PARTITIONS_MAX, ADD_OFFSETS_MAX, END_MAX, COMMIT_OFFSETS_MAX = 5, 3, 3, 4, 4

NEXT_EPOCH_FROM = 3
"""First version of InitProducerId in which a producer can request its next epoch (KIP-360)."""

TWO_PHASE_FROM = 6
"""First version of InitProducerId that supports transactions without a timeout (KIP-939)."""

NO_PRODUCER = ProducerIdentity(-1, -1)

FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
"""Errors after which a producer can no longer use its transactional id."""


def is_fenced(error: BaseException | None) -> bool:
    """Return True if an error or one of its causes means that the producer was fenced."""
    depth = 0
    while error is not None and depth < 10:
        if isinstance(error, BrokerRefused) and error.code in FENCED:
            return True
        error, depth = error.__cause__, depth + 1
    return False


def init_body(
    transactional_id: str | None,
    timeout_ms: int,
    current: ProducerIdentity = NO_PRODUCER,
    *,
    two_phase: bool = False,
) -> dict[str, Any]:
    """Build an InitProducerId request.

    :param transactional_id: None for a producer without transactions; ``timeout_ms`` is then ignored.
    :param current: the current identity, whose next epoch is requested.
    :param two_phase: request transactions without a timeout (KIP-939); requires version ``TWO_PHASE_FROM``.
    """
    return {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": current.producer_id,
        "producer_epoch": current.epoch,
        "enable_2pc": two_phase,
        "keep_prepared_txn": False,
    }


def parse_identity(response: dict[str, Any], what: str) -> ProducerIdentity:
    """Parse an InitProducerId response.

    :raise BrokerRefused: the response contains an error.
    """
    check(response, what)
    return ProducerIdentity(response["producer_id"], response["producer_epoch"])


def add_partitions_body(
    transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> dict[str, Any]:
    """Build an AddPartitionsToTxn request."""
    topics = [
        {"name": topic, "partitions": [each.partition for each in group]}
        for topic, group in groupby(sorted(partitions), key=lambda each: each.topic)
    ]
    prefix = "v3_and_below_"
    return {
        f"{prefix}transactional_id": transactional_id,
        f"{prefix}producer_id": identity.producer_id,
        f"{prefix}producer_epoch": identity.epoch,
        f"{prefix}topics": topics,
    }


def check_added_partitions(response: dict[str, Any], transactional_id: str) -> None:
    """Raise the most significant error of an AddPartitionsToTxn response.

    :raise BrokerRefused: the response contains an error; a final error takes precedence over a retriable one.
    """
    problems: list[ClientError] = []
    for topic in response["results_by_topic_v3_and_below"]:
        for row in topic["results_by_partition"]:
            what = f"{topic['name']}-{row['partition_index']} in transaction {transactional_id!r}"
            try:
                check({"error_code": row["partition_error_code"]}, what)
            except ClientError as error:
                problems.append(error)
    for problem in sorted(problems, key=lambda each: (each.retriable, _not_attempted(each))):
        raise problem


def _not_attempted(error: ClientError) -> bool:
    return isinstance(error, BrokerRefused) and error.code is ErrorCode.OPERATION_NOT_ATTEMPTED


def producer_body(transactional_id: str, identity: ProducerIdentity, **fields: Any) -> dict[str, Any]:
    """Return the fields that identify the producer in its other requests, with additional fields."""
    return {
        "transactional_id": transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
        **fields,
    }
