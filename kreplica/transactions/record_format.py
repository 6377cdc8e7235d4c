"""Format of the records of ``__transaction_state``, for the admin API and the command line."""

from __future__ import annotations

from typing import Any

from zope.interface import implementer

from kreplica.cluster.topic_names import TRANSACTION_STATE
from kreplica.errors import ProtocolError
from kreplica.formats.json_values import to_json
from kreplica.interfaces.formats import Decoded, FormatContext, FormatError, IRecordFormat, Place, RegisteredSchema
from kreplica.transactions.records import by_topic, decode_key, decode_value


@implementer(IRecordFormat)
class TransactionRecordFormat:
    """Decodes the states of transactional IDs, which only coordinators write."""

    can_encode = False
    schema_type = None

    def __init__(self, context: FormatContext) -> None:
        pass

    def recognizes(self, data: bytes, place: Place) -> bool:
        return place.topic == TRANSACTION_STATE

    def decode(self, data: bytes, place: Place) -> Decoded:
        try:
            return Decoded(to_json(_key(data) if place.is_key else _value(data, place.record_key)))
        except ProtocolError as error:
            raise FormatError(str(error)) from None

    def encode(self, value: Any, schema: RegisteredSchema | None, message: str | None) -> bytes:
        raise FormatError("only transaction coordinators write these records")


def _key(key: bytes) -> dict[str, Any]:
    transactional_id = decode_key(key)
    if transactional_id is None:
        raise FormatError("the key has an unknown version")
    return {"transactional_id": transactional_id}


def _value(value: bytes, key: bytes | None) -> dict[str, Any]:
    transactional_id = None if key is None else decode_key(key)
    transaction = decode_value(transactional_id or "", value)
    return {
        "state": transaction.state.name.lower(),
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "timeout_ms": transaction.timeout_ms,
        "partitions": by_topic(transaction.partitions),
        "last_update_ms": transaction.last_update_ms,
        "start_ms": transaction.start_ms,
        "previous_producer_id": transaction.previous_producer_id,
        "next_producer_id": transaction.next_identity.producer_id,
        "next_producer_epoch": transaction.next_identity.epoch,
        "client_version": transaction.client_version,
    }
