"""Keys and values of ``__consumer_offsets`` that keep the groups of KIP-848, in the format of Kafka 4.0, both ways.

The version of a key says what kind of record it is.  Keys are in the plain encoding, values, of version 0, in that of
KIP-482; unknown tags of later versions are read over.  A null value, the tombstone, is None.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from kreplica.errors import ProtocolError
from kreplica.wire.primitives import Buffer
from kreplica.wire.schema import Schema


class RecordKind(IntEnum):
    """What a record is about: the version of its key.  ``name`` of the key is what the line says in brackets."""

    GROUP_EPOCH = 3
    TOPICS = 4
    MEMBER = 5
    """[member id]"""
    TARGET_EPOCH = 6
    TARGET = 7
    """[member id]"""
    CURRENT = 8
    """[member id]"""
    REGULAR_EXPRESSION = 16
    """[regular expression]"""


class ConsumerKey(NamedTuple):
    """:param name: the member or the regular expression; empty where the kind has neither."""

    kind: RecordKind
    group_id: str
    name: str = ""


KEY_TEXT_BYTES_MAX = 2**15 - 1
"""Bytes of a group's id, a member's id or a regular expression: in keys, lengths are int16."""

_VERSION = Struct(">h")
_VALUE_VERSION = 0


def _key_schema(title: str, kind: RecordKind, name: str = "") -> Schema:
    return Schema(title + "Key", (kind, kind), None, "group_id str" + (f"\n{name} str" if name else ""))


def _value_schema(title: str, text: str) -> Schema:
    return Schema(title + "Value", (_VALUE_VERSION, _VALUE_VERSION), 0, text)


_KEY_NAMES = {
    RecordKind.MEMBER: "member_id",
    RecordKind.TARGET: "member_id",
    RecordKind.CURRENT: "member_id",
    RecordKind.REGULAR_EXPRESSION: "regular_expression",
}

_TITLES = {
    RecordKind.GROUP_EPOCH: "ConsumerGroupMetadata",
    RecordKind.TOPICS: "ConsumerGroupPartitionMetadata",
    RecordKind.MEMBER: "ConsumerGroupMemberMetadata",
    RecordKind.TARGET_EPOCH: "ConsumerGroupTargetAssignmentMetadata",
    RecordKind.TARGET: "ConsumerGroupTargetAssignmentMember",
    RecordKind.CURRENT: "ConsumerGroupCurrentMemberAssignment",
    RecordKind.REGULAR_EXPRESSION: "ConsumerGroupRegularExpression",
}

_KEYS = {kind: _key_schema(title, kind, _KEY_NAMES.get(kind, "")) for kind, title in _TITLES.items()}

_VALUE_TEXTS = {
    RecordKind.GROUP_EPOCH: """
        epoch i32
    """,
    RecordKind.TOPICS: """
        topics []
          topic_id uuid
          topic_name str
          num_partitions i32
          partition_metadata []
            partition i32
            racks []str
    """,
    RecordKind.MEMBER: """
        instance_id str?
        rack_id str?
        client_id str
        client_host str
        subscribed_topic_names []str?
        subscribed_topic_regex str?
        rebalance_timeout_ms i32 =-1
        server_assignor str?
    """,
    RecordKind.TARGET_EPOCH: """
        assignment_epoch i32
    """,
    RecordKind.TARGET: """
        topic_partitions []
          topic_id uuid
          partitions []i32
    """,
    RecordKind.CURRENT: """
        member_epoch i32
        previous_member_epoch i32
        state i8
        assigned_partitions []
          topic_id uuid
          partitions []i32
        partitions_pending_revocation []
          topic_id uuid
          partitions []i32
    """,
    RecordKind.REGULAR_EXPRESSION: """
        topics []str
        version i64
        timestamp i64
    """,
}

_VALUES = {kind: _value_schema(_TITLES[kind], text) for kind, text in _VALUE_TEXTS.items()}


def is_consumer_key(version: int) -> bool:
    """Whether a key of that version is of a group of KIP-848."""
    return version in _KEYS


def build_consumer_key(key: ConsumerKey) -> bytes:
    """Write a key.

    :raise ProtocolError: a text is longer than ``KEY_TEXT_BYTES_MAX``.
    """
    kind, group_id, name = key
    fields = {"group_id": group_id, _KEY_NAMES.get(kind, ""): name}
    return _VERSION.pack(kind) + _KEYS[kind].build(kind, fields)


def parse_consumer_key(key: Buffer) -> ConsumerKey:
    """Read a key.

    :raise ProtocolError: it is malformed, or of no such kind.
    """
    version = _version_of("ConsumerGroupKey", key)
    if not is_consumer_key(version):
        raise ProtocolError("ConsumerGroupKey.version", f"{version} is of no group of KIP-848")
    kind = RecordKind(version)
    fields = _KEYS[kind].parse(kind, key, _VERSION.size)
    return ConsumerKey(kind, fields["group_id"], fields.get(_KEY_NAMES.get(kind, ""), ""))


def build_consumer_value(kind: RecordKind, fields: dict[str, Any]) -> bytes:
    """Write a value by the names of its fields in Kafka.

    :raise ProtocolError: a value does not fit.
    """
    return _VERSION.pack(_VALUE_VERSION) + _VALUES[kind].build(_VALUE_VERSION, fields)


def parse_consumer_value(kind: RecordKind, value: Buffer) -> dict[str, Any]:
    """Read a value into its fields.

    :raise ProtocolError: it is malformed, or of a version that is not known, which the error names.
    """
    schema = _VALUES[kind]
    return schema.parse(_version_of(schema.name, value), value, _VERSION.size)


def _version_of(name: str, data: Buffer) -> int:
    try:
        version: int = _VERSION.unpack_from(data)[0]
    except StructError:
        raise ProtocolError(f"{name}.version", f"needs {_VERSION.size} bytes, there are {len(data)}") from None
    return version
