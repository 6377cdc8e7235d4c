"""Record format of KIP-848 groups in ``__consumer_offsets``, as in Kafka 4.0.

The version of a key determines the record type. Keys use the non-flexible encoding. Values have version 0 and use the
flexible encoding (KIP-482); unknown tagged fields are ignored. A tombstone has the value None.
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
    """Record type, equal to the version of its key. The meaning of ``ConsumerKey.name`` is shown in brackets."""

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
    """Key of a record.

    :param name: member id or regular expression; empty for other record types.
    """

    kind: RecordKind
    group_id: str
    name: str = ""


KEY_TEXT_BYTES_MAX = 2**15 - 1
"""Maximum size of group ids, member ids and regular expressions in bytes, because lengths in keys are int16."""

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
    """Return True if a key version belongs to a KIP-848 group."""
    return version in _KEYS


def build_consumer_key(key: ConsumerKey) -> bytes:
    """Encode a key.

    :raise ProtocolError: a string is longer than ``KEY_TEXT_BYTES_MAX``.
    """
    kind, group_id, name = key
    fields = {"group_id": group_id, _KEY_NAMES.get(kind, ""): name}
    return _VERSION.pack(kind) + _KEYS[kind].build(kind, fields)


def parse_consumer_key(key: Buffer) -> ConsumerKey:
    """Parse a key.

    :raise ProtocolError: the key is malformed or has an unknown record type.
    """
    version = _version_of("ConsumerGroupKey", key)
    if not is_consumer_key(version):
        raise ProtocolError("ConsumerGroupKey.version", f"{version} is not a key version of KIP-848 groups")
    kind = RecordKind(version)
    fields = _KEYS[kind].parse(kind, key, _VERSION.size)
    return ConsumerKey(kind, fields["group_id"], fields.get(_KEY_NAMES.get(kind, ""), ""))


def build_consumer_value(kind: RecordKind, fields: dict[str, Any]) -> bytes:
    """Encode a value; its fields are named as in Kafka.

    :raise ProtocolError: a field is out of range.
    """
    return _VERSION.pack(_VALUE_VERSION) + _VALUES[kind].build(_VALUE_VERSION, fields)


def parse_consumer_value(kind: RecordKind, value: Buffer) -> dict[str, Any]:
    """Parse a value into its fields.

    :raise ProtocolError: the value is malformed or has an unknown version; the message contains the version.
    """
    schema = _VALUES[kind]
    return schema.parse(_version_of(schema.name, value), value, _VERSION.size)


def _version_of(name: str, data: Buffer) -> int:
    try:
        version: int = _VERSION.unpack_from(data)[0]
    except StructError:
        raise ProtocolError(f"{name}.version", f"needs {_VERSION.size} bytes, but there are {len(data)}") from None
    return version
