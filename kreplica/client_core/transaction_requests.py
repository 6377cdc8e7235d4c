"""A transaction's talk with its coordinator (KIP-98), as bodies of requests, and what answers to them say."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from kreplica.client_core.errors import BrokerRefused, ClientError, check
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition

# Later versions are for brokers, or mean that brokers add partitions by themselves and raise epochs (KIP-890).
INIT_MAX, ADD_PARTITIONS_MAX, ADD_OFFSETS_MAX, END_MAX, COMMIT_OFFSETS_MAX = 5, 3, 3, 4, 4

BUMP_FROM = 3
"""From this version of InitProducerId on, a producer can ask for its next epoch (KIP-360)."""

TWO_PHASE_FROM = 6
"""From this version of InitProducerId on, transactions may be without a time-out (KIP-939)."""

NO_PRODUCER = ProducerIdentity(-1, -1)

FENCED = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
"""What a producer is told that can do nothing more under its transactional id."""


def is_fenced(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, says that a producer can do nothing more."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, BrokerRefused) and error.code in FENCED:
            return True
        error, seen = error.__cause__, seen + 1
    return False


def init_body(
    transactional_id: str | None,
    timeout_ms: int,
    before: ProducerIdentity = NO_PRODUCER,
    *,
    two_phase: bool = False,
) -> dict[str, Any]:
    """A question for a producer id, or for the next epoch of one.

    :param transactional_id: None for a producer without transactions; ``timeout_ms`` says nothing then.
    :param two_phase: transactions that never time out (KIP-939); from version ``TWO_PHASE_FROM`` on.
    """
    return {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": before.producer_id,
        "producer_epoch": before.epoch,
        "enable_2pc": two_phase,
        "keep_prepared_txn": False,
    }


def parse_identity(answer: dict[str, Any], what: str) -> ProducerIdentity:
    """Who the producer is, by an answer to it.

    :raise BrokerRefused: it is an error.
    """
    check(answer, what)
    return ProducerIdentity(answer["producer_id"], answer["producer_epoch"])


def add_partitions_body(
    transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> dict[str, Any]:
    """Let partitions belong to the transaction."""
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


def check_added_partitions(answer: dict[str, Any], transactional_id: str) -> None:
    """:raise BrokerRefused: with an error of some partition, one that another try cannot mend before others."""
    problems: list[ClientError] = []
    for topic in answer["results_by_topic_v3_and_below"]:
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


def producer_body(transactional_id: str, identity: ProducerIdentity, **more: Any) -> dict[str, Any]:
    """The fields by which the other requests name their producer, and more."""
    return {
        "transactional_id": transactional_id,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
        **more,
    }
