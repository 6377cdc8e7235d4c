"""Record format of committed offsets and classic groups in ``__consumer_offsets``, as in Kafka.

Keys and values start with their version (int16). Key versions 0 and 1 are used for offsets, version 2 for classic
groups, and versions 3 and above for KIP-848 groups. A tombstone has the value None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from kreplica.errors import ProtocolError
from kreplica.wire.primitives import Buffer
from kreplica.wire.schema import Schema

OFFSET_KEY_VERSIONS = (0, 1)
"""Key versions of committed offsets. Version 1 is written; version 0 has the same layout."""

GROUP_KEY_VERSION = 2

NO_LEADER_EPOCH = -1
"""Leader epoch in a commit that has none."""

NO_TIME = -1
"""Value of a timestamp that is not set."""

TEXT_SIZE_MAX = 2**15 - 1
"""Maximum size of strings in these records in bytes, because lengths are int16."""

_OFFSET_VALUE_VERSION = 3
_EXPIRING_OFFSET_VALUE_VERSION = 1
_GROUP_VALUE_VERSION = 3

_VERSION = Struct(">h")
_PARTITION = Struct(">i")
_OFFSET_VALUE_HEAD = Struct(">hqih")
_OFFSET_VALUE_TAIL = Struct(">q")
_BARE_OFFSET_VALUE = Struct(">hqihq")

_OFFSET_KEY = Schema(
    "OffsetCommitKey",
    (0, 1),
    None,
    """
    group str
    topic str
    partition i32
    """,
)

_OFFSET_VALUE = Schema(
    "OffsetCommitValue",
    (0, 4),
    4,
    """
    offset i64
    leader_epoch i32 3+ =-1
    metadata str
    commit_timestamp i64
    expire_timestamp i64 1 =-1
    """,
)

_GROUP_KEY = Schema("GroupMetadataKey", (2, 2), None, "group str")

_GROUP_VALUE = Schema(
    "GroupMetadataValue",
    (0, 4),
    4,
    """
    protocol_type str
    generation i32
    protocol str?
    leader str?
    current_state_timestamp i64 2+ =-1
    members []
      member_id str
      group_instance_id str? 3+ =null
      client_id str
      client_host str
      rebalance_timeout i32 1+
      session_timeout i32
      subscription bytes
      assignment bytes
    """,
)


class OffsetKey(NamedTuple):
    """Key of a committed offset."""

    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """Committed offset of one partition.

    :param offset: next offset to read.
    :param leader_epoch: leader epoch of the last record read, or ``NO_LEADER_EPOCH`` (KIP-320).
    :param metadata: arbitrary text set by the client.
    :param expire_timestamp_ms: expiry time set by the client (OffsetCommit versions 2 to 4), or ``NO_TIME``.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIME


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """Member of a classic group in the group's record.

    :param subscription: the member's metadata for the selected protocol.
    :param assignment: as sent by the group leader.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """Record of a classic group, written after each rebalance.

    :param protocol_type: ``""`` for a group that has never had members.
    :param protocol: the selected protocol; like ``leader``, None without members.
    :param state_timestamp_ms: time of the last state change; ``NO_TIME`` before value version 2.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: Sequence[MemberRecord]


def key_version(key: Buffer) -> int:
    """Return the version of a key, which determines the record type.

    :raise ProtocolError: the key is truncated.
    """
    return _version_of("CoordinatorKey", key)


# --- committed offsets -----------------------------------------------------------------------------------------------


def offset_key_prefix(group_id: str, topic: str) -> bytes:
    """Return the common prefix of the offset keys of a topic; ``offset_key`` appends the partition.

    :raise ProtocolError: a name is too long.
    """
    return _VERSION.pack(1) + _OFFSET_KEY.build(1, {"group": group_id, "topic": topic})[: -_PARTITION.size]


def offset_key(prefix: bytes, partition: int) -> bytes:
    """Return the key of a committed offset from its topic's prefix."""
    return prefix + _PARTITION.pack(partition)


def build_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset, version 1.

    :raise ProtocolError: a name is too long.
    """
    return offset_key(offset_key_prefix(group_id, topic), partition)


def parse_offset_key(key: Buffer) -> OffsetKey:
    """Parse a key of version 0 or 1.

    :raise ProtocolError: the key is malformed or of another type.
    """
    fields = _parse(_OFFSET_KEY, key)
    return OffsetKey(fields["group"], fields["topic"], fields["partition"])


def build_offset_value(committed: CommittedOffset) -> bytes:
    """Return the value of a committed offset: version 3, or 1 if the client set an expiry.

    :raise ProtocolError: a field is out of range.
    """
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = committed
    if expire_timestamp_ms != NO_TIME:
        fields = {
            "offset": offset,
            "metadata": metadata,
            "commit_timestamp": commit_timestamp_ms,
            "expire_timestamp": expire_timestamp_ms,
        }
        version = _EXPIRING_OFFSET_VALUE_VERSION
        return _VERSION.pack(version) + _OFFSET_VALUE.build(version, fields)
    try:
        if not metadata:
            return _BARE_OFFSET_VALUE.pack(_OFFSET_VALUE_VERSION, offset, leader_epoch, 0, commit_timestamp_ms)
        text = metadata.encode()
        head = _OFFSET_VALUE_HEAD.pack(_OFFSET_VALUE_VERSION, offset, leader_epoch, len(text))
        return b"".join((head, text, _OFFSET_VALUE_TAIL.pack(commit_timestamp_ms)))
    except (StructError, UnicodeEncodeError) as error:
        raise ProtocolError("OffsetCommitValue", f"{committed} cannot be written: {error}") from None


def parse_offset_value(value: Buffer) -> CommittedOffset:
    """Parse a value of version 0 to 4.

    :raise ProtocolError: the value is malformed or has an unknown version; the message contains the version.
    """
    if len(value) == _BARE_OFFSET_VALUE.size:  # fast path: most values have no metadata
        version, offset, leader_epoch, size, commit_timestamp_ms = _BARE_OFFSET_VALUE.unpack(value)
        if version == _OFFSET_VALUE_VERSION and size == 0:
            return CommittedOffset(offset, leader_epoch, "", commit_timestamp_ms)
    fields = _parse(_OFFSET_VALUE, value)
    return CommittedOffset(
        fields["offset"],
        fields.get("leader_epoch", NO_LEADER_EPOCH),
        fields["metadata"],
        fields["commit_timestamp"],
        fields.get("expire_timestamp", NO_TIME),
    )


# --- classic groups --------------------------------------------------------------------------------------------------


def build_group_key(group_id: str) -> bytes:
    """Return the key of a classic group, version 2.

    :raise ProtocolError: the group id is too long.
    """
    return _VERSION.pack(GROUP_KEY_VERSION) + _GROUP_KEY.build(GROUP_KEY_VERSION, {"group": group_id})


def parse_group_key(key: Buffer) -> str:
    """Return the group id in a key of version 2.

    :raise ProtocolError: the key is malformed or of another type.
    """
    group_id: str = _parse(_GROUP_KEY, key)["group"]
    return group_id


def build_group_value(group: GroupRecord) -> bytes:
    """Return the record value of a classic group, version 3.

    :raise ProtocolError: a field is out of range, for example a string longer than ``TEXT_SIZE_MAX`` bytes.
    """
    fields = {
        "protocol_type": group.protocol_type,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "current_state_timestamp": group.state_timestamp_ms,
        "members": [_member_fields(member) for member in group.members],
    }
    return _VERSION.pack(_GROUP_VALUE_VERSION) + _GROUP_VALUE.build(_GROUP_VALUE_VERSION, fields)


def parse_group_value(value: Buffer) -> GroupRecord:
    """Parse a value of versions 0 to 4.

    :raise ProtocolError: malformed, or an unknown version, which the message contains.
    """
    fields = _parse(_GROUP_VALUE, value)
    return GroupRecord(
        fields["protocol_type"],
        fields["generation"],
        fields["protocol"],
        fields["leader"],
        fields.get("current_state_timestamp", NO_TIME),
        tuple(_member(member) for member in fields["members"]),
    )


def _member_fields(member: MemberRecord) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout": member.rebalance_timeout_ms,
        "session_timeout": member.session_timeout_ms,
        "subscription": member.subscription,
        "assignment": member.assignment,
    }


def _member(fields: dict[str, Any]) -> MemberRecord:
    session_timeout_ms: int = fields["session_timeout"]
    return MemberRecord(
        fields["member_id"],
        fields.get("group_instance_id"),
        fields["client_id"],
        fields["client_host"],
        # Before KIP-62, one timeout served both purposes.
        fields.get("rebalance_timeout", session_timeout_ms),
        session_timeout_ms,
        fields["subscription"],
        fields["assignment"],
    )


def _parse(schema: Schema, data: Buffer) -> dict[str, Any]:
    return schema.parse(_version_of(schema.name, data), data, _VERSION.size)


def _version_of(name: str, data: Buffer) -> int:
    try:
        version: int = _VERSION.unpack_from(data)[0]
    except StructError:
        raise ProtocolError(f"{name}.version", f"needs {_VERSION.size} bytes, but there are {len(data)}") from None
    return version
