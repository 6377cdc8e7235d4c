"""Format of the records of ``__consumer_offsets``, for the admin API and the command line."""

from __future__ import annotations

from typing import Any

from zope.interface import implementer

from kreplica.cluster.topic_names import CONSUMER_OFFSETS
from kreplica.errors import ProtocolError
from kreplica.formats.json_values import to_json
from kreplica.groups.consumer_records import is_consumer_key, parse_consumer_key, parse_consumer_value
from kreplica.groups.records import (
    GROUP_KEY_VERSION,
    OFFSET_KEY_VERSIONS,
    key_version,
    parse_group_key,
    parse_group_value,
    parse_offset_key,
    parse_offset_value,
)
from kreplica.interfaces.formats import Decoded, FormatContext, FormatError, IRecordFormat, Place, RegisteredSchema


@implementer(IRecordFormat)
class GroupRecordFormat:
    """Decodes records of committed offsets, classic groups and KIP-848 groups; only coordinators write them."""

    can_encode = False
    schema_type = None

    def __init__(self, context: FormatContext) -> None:
        pass

    def recognizes(self, data: bytes, place: Place) -> bool:
        return place.topic == CONSUMER_OFFSETS

    def decode(self, data: bytes, place: Place) -> Decoded:
        try:
            return Decoded(to_json(_key(data) if place.is_key else _value(data, place.record_key)))
        except ProtocolError as error:
            raise FormatError(str(error)) from None

    def encode(self, value: Any, schema: RegisteredSchema | None, message: str | None) -> bytes:
        raise FormatError("only group coordinators write these records")


def _key(key: bytes) -> dict[str, Any]:
    version = key_version(key)
    if version in OFFSET_KEY_VERSIONS:
        return {"type": "offset_commit", **parse_offset_key(key)._asdict()}
    if version == GROUP_KEY_VERSION:
        return {"type": "group_metadata", "group_id": parse_group_key(key)}
    if is_consumer_key(version):
        parsed = parse_consumer_key(key)
        name = {"name": parsed.name} if parsed.name else {}
        return {"type": f"consumer_group_{parsed.kind.name.lower()}", "group_id": parsed.group_id, **name}
    raise FormatError(f"the key has the unknown version {version}")


def _value(value: bytes, key: bytes | None) -> Any:
    if key is None:
        raise FormatError("the record has no key, which determines the layout of the value")
    version = key_version(key)
    if version in OFFSET_KEY_VERSIONS:
        return parse_offset_value(value)._asdict()
    if version == GROUP_KEY_VERSION:
        group = parse_group_value(value)
        members = [{name: getattr(member, name) for name in member.__slots__} for member in group.members]
        return {**{name: getattr(group, name) for name in group.__slots__}, "members": members}
    if is_consumer_key(version):
        return parse_consumer_value(parse_consumer_key(key).kind, value)
    raise FormatError(f"the key has the unknown version {version}")
