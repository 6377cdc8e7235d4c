"""Record format of ``__transaction_state``, as in Kafka.

Keys and values start with their version (int16). Value version 0 is understood by all Kafka versions; version 1, with
flexible encoding, is written only if needed (KIP-890, KIP-939). The value of a tombstone is None.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Any

from kreplica.errors import ProtocolError
from kreplica.model import TopicPartition
from kreplica.transactions.states import (
    NO_IDENTITY,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Identity,
    Transaction,
    TransactionState,
)
from kreplica.wire.primitives import Buffer
from kreplica.wire.schema import Schema

KEY_VERSION = 0

_VERSION = Struct(">h")

_KEY = Schema("TransactionLogKey", (0, 0), None, "transactional_id str")

_VALUE = Schema(
    "TransactionLogValue",
    (0, 1),
    1,
    """
    producer_id i64
    previous_producer_id i64 1+ @0 =-1
    next_producer_id i64 1+ @1 =-1
    producer_epoch i16
    next_producer_epoch i16 1+ @3 =-1
    timeout_ms i32
    status i8
    partitions []?
      topic str
      partition_ids []i32
    last_update_ms i64
    start_ms i64
    client_version i16 1+ @2
    """,
)

_STATUSES = {int(state): state for state in TransactionState}


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id."""
    return _VERSION.pack(KEY_VERSION) + _KEY.build(0, {"transactional_id": transactional_id})


def decode_key(key: Buffer) -> str | None:
    """Return the transactional id; None for an unknown key version, whose record is ignored (KIP-915).

    :raise ProtocolError: the key is truncated.
    """
    if _version(_KEY, key) != KEY_VERSION:
        return None
    transactional_id: str = _KEY.parse(KEY_VERSION, key, _VERSION.size)["transactional_id"]
    return transactional_id


def encode_value(transaction: Transaction) -> bytes:
    """Return the value of a transactional id, in the lowest version that can represent it."""
    following = transaction.next_identity
    is_plain = (
        following == NO_IDENTITY
        and transaction.previous_producer_id == NO_PRODUCER_ID
        and transaction.client_version == 0
    )
    version = 0 if is_plain else 1
    body = {
        "producer_id": transaction.producer_id,
        "previous_producer_id": transaction.previous_producer_id,
        "next_producer_id": following.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "next_producer_epoch": following.epoch,
        "timeout_ms": transaction.timeout_ms,
        "status": int(transaction.state),
        "partitions": _by_topic(transaction),
        "last_update_ms": transaction.last_update_ms,
        "start_ms": transaction.start_ms,
        "client_version": transaction.client_version,
    }
    return _VERSION.pack(version) + _VALUE.build(version, body)


def decode_value(transactional_id: str, value: Buffer) -> Transaction:
    """Return the transaction in a record.

    :raise ProtocolError: the value is malformed, or its version or state is unknown.
    """
    version = _version(_VALUE, value)
    if version not in _VALUE.versions:
        raise ProtocolError(f"{_VALUE.name}.version", f"unknown version {version} for {transactional_id!r}")
    body = _VALUE.parse(version, value, _VERSION.size)
    state = _STATUSES.get(body["status"])
    if state is None:
        raise ProtocolError(f"{_VALUE.name}.status", f"unknown status {body['status']} for {transactional_id!r}")
    return Transaction(
        transactional_id,
        body["producer_id"],
        body["producer_epoch"],
        body["timeout_ms"],
        state,
        frozenset(
            TopicPartition(each["topic"], number)
            for each in body["partitions"] or ()
            for number in each["partition_ids"]
        ),
        body["last_update_ms"],
        body["start_ms"],
        previous_producer_id=body.get("previous_producer_id", NO_PRODUCER_ID),
        next_identity=_next_identity(body),
        client_version=body.get("client_version", 0),
    )


def by_topic(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    """Return partition numbers by topic, both sorted."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return numbers


def _by_topic(transaction: Transaction) -> list[dict[str, Any]] | None:
    """Return the partitions as rows: None in state EMPTY, as in Kafka; a list, possibly empty, in all other states."""
    if transaction.state is TransactionState.EMPTY and not transaction.partitions:
        return None
    return [{"topic": topic, "partition_ids": numbers} for topic, numbers in by_topic(transaction.partitions).items()]


def _next_identity(body: dict[str, Any]) -> Identity:
    producer_id = body.get("next_producer_id", NO_PRODUCER_ID)
    if producer_id == NO_PRODUCER_ID:
        return NO_IDENTITY
    epoch = body["next_producer_epoch"]
    # Before KIP-939 the next identity always had epoch 0.
    return Identity(producer_id, 0 if epoch == NO_PRODUCER_EPOCH else epoch)


def _version(schema: Schema, data: Buffer) -> int:
    try:
        version: int = _VERSION.unpack_from(data)[0]
    except StructError:
        raise ProtocolError(f"{schema.name}.version", f"needs 2 bytes, but {len(data)} remain") from None
    return version
