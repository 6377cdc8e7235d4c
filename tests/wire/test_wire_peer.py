"""Random messages are encoded and decoded as by kafka-python, an independent implementation."""

from __future__ import annotations

import importlib.resources
import random
import warnings
from typing import Any

import pytest
from wire_values import all_schemas, random_message

from kreplica.model import ZERO_UUID
from kreplica.wire.schema import Schema
from kreplica.wire.structures import Record
from kreplica.wire.types import Uuid

with warnings.catch_warnings():  # kafka-python reads its own files in a deprecated way
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.schemas.resources as peer_resources
    from kafka.protocol.api_data import ApiData
    from kafka.protocol.api_header import ResponseClassRegistry
    from kafka.protocol.api_message import ApiMessage

PEER_FILES = {path.name.removesuffix(".json") for path in importlib.resources.files(peer_resources).iterdir()}
SHARED = [schema for schema in all_schemas() if schema.name in PEER_FILES]

NOT_IN_PEER = {
    # used only between brokers and controllers, while the peer is a client
    "AllocateProducerIds",
    "AlterPartition",
    "ControlledShutdown",
    "Envelope",
    "LeaderAndIsr",
    "StopReplica",
    "UpdateMetadata",
    # client APIs that the peer does not support
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "CreateDelegationToken",
    "DescribeDelegationToken",
    "ExpireDelegationToken",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "RenewDelegationToken",
}

PEER_NAMES = {"enable_2pc": "enable2_pc"}
"""The peer's field names that differ from this project's."""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_missing_messages_of_the_peer_are_listed() -> None:
    """All messages except the listed ones exist in the peer, and are compared."""
    unshared = {schema.name for schema in all_schemas() if schema.name not in PEER_FILES}
    assert unshared == {name + kind for name in NOT_IN_PEER for kind in ("Request", "Response")}


def peer_class(schema: Schema) -> Any:
    """Return the peer's class for a message, created from the peer's own field definitions."""
    base = ApiData if schema.name.startswith("ConsumerProtocol") else ApiMessage
    registry = ResponseClassRegistry._response_class_registry
    registered = dict(registry)
    peer_type = type(base)(schema.name, (base,), {"__slots__": ()})
    registry.update(registered)  # restores the peer's own class, which the clients of other tests need
    return peer_type


def to_peer(field: Any, value: Any, version: int) -> Any:
    """Convert a value to the peer's objects, without tagged fields that have their default."""
    if isinstance(value, list):
        return [to_peer(field, item, version) for item in value]
    if not isinstance(value, dict):
        return value
    named = ((PEER_NAMES.get(name, name), item) for name, item in value.items())
    given = {name: to_peer(field.fields[name], item, version) for name, item in named}
    return field.data_class(version=version, **given)


def without_defaults(kind: Any, value: Any) -> Any:
    """Return the value without tagged fields that have their default, because the peer would encode them."""
    if isinstance(value, list):
        return [without_defaults(kind.item, item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {field.name: without_defaults(field.type, value[field.name]) for field in kind.fields}
    for field in kind.tagged:
        if value[field.name] != field.default:
            result[field.name] = without_defaults(field.type, value[field.name])
    return result


def from_peer(kind: Any, value: Any) -> Any:
    """Convert the peer's decoded value to plain values with this project's names, without missing tags."""
    if isinstance(value, (list, tuple)):
        return [from_peer(kind.item, item) for item in value]
    if isinstance(kind, Record) and value is not None:
        fields = [*kind.fields, *(field for field in kind.tagged if field.name in (value.tags or ()))]
        named = ((field, PEER_NAMES.get(field.name, field.name)) for field in fields)
        return {field.name: from_peer(field.type, getattr(value, name)) for field, name in named}
    if isinstance(kind, Uuid):
        return value or ZERO_UUID  # the peer decodes the zero ID, which means none, as None
    return bytes(value) if isinstance(value, memoryview) else value


@pytest.mark.parametrize("schema", SHARED, ids=lambda schema: schema.name)
def test_peer_encodes_and_decodes_the_same_bytes(schema: Schema) -> None:
    peer = peer_class(schema)
    options = {"header": False} if schema.name.startswith("ConsumerProtocol") else {}
    rng = random.Random(schema.name)
    assert peer.max_version >= schema.versions[-1]  # it has the fields of all older versions, including withdrawn ones
    for version in schema.versions:
        for _ in range(10):
            value = random_message(schema, version, rng)
            ours = schema.build(version, value)
            changed = without_defaults(schema.tree(version), value)
            assert to_peer(peer._struct, changed, version).encode(version=version, **options) == ours
            assert schema.parse(version, ours) == value
            assert from_peer(schema.tree(version), peer.decode(ours, version=version, **options)) == changed
