"""Decodes operations that change the tree; works in place, for speed.

An operation is a plain tuple; the meaning of its fields depends on the operation code, see ``Change``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kreplica.errors import ProtocolError
from kreplica.zookeeper.jute import INT64, Reader, unpack_int32
from kreplica.zookeeper.records import OPEN_ACL, Acl, Opcode, pack_acl, read_acl
from kreplica.zookeeper.requests import MULTI_HEADER

_PACKED_OPEN_ACL = pack_acl(OPEN_ACL)
_PACKED_OPEN_ACL_SIZE = len(_PACKED_OPEN_ACL)

CREATE_TTL = int(Opcode.CREATE_TTL)
_NO_ACL: tuple[Acl, ...] = ()


class Change(NamedTuple):
    """One operation; decoders return plain tuples with these fields.

    :param value: data of a create or setData.
    :param number: creation flags of a create; expected version of the other operations.
    :param time_to_live_ms: time to live of a created znode; 0 means unlimited.
    """

    opcode: int
    path: str
    value: bytes | None = None
    acl: tuple[Acl, ...] = _NO_ACL
    number: int = -1
    time_to_live_ms: int = 0


PlainChange: TypeAlias = tuple[int, str, bytes | None, tuple[Acl, ...], int, int]


def decode_change(opcode: int, data: bytes, position: int, end: int) -> tuple[PlainChange, int]:
    """Decode one operation; return it and the position after it.

    :raise ProtocolError, struct.error, UnicodeDecodeError: if the operation is malformed.
    """
    start = position + 4
    stop = start + unpack_int32(data, position)[0]
    if not start <= stop <= end:
        raise ProtocolError("path", f"length {stop - start} is negative or exceeds the request")
    return _DECODERS[opcode](opcode, data[start:stop].decode(), data, stop, end)


def _decode_create(opcode: int, path: str, data: bytes, position: int, end: int) -> tuple[PlainChange, int]:
    value, position = _value(data, position, end)
    acl: tuple[Acl, ...] = OPEN_ACL
    if data.startswith(_PACKED_OPEN_ACL, position):
        position += _PACKED_OPEN_ACL_SIZE
    else:
        reader = Reader(data, position, end, "ACL")
        acl = read_acl(reader)
        position = reader.position
    flags = unpack_int32(data, position)[0]
    position += 4
    if opcode != CREATE_TTL:
        return (opcode, path, value, acl, flags, 0), position
    return (opcode, path, value, acl, flags, INT64.unpack_from(data, position)[0]), position + 8


def _decode_set(opcode: int, path: str, data: bytes, position: int, end: int) -> tuple[PlainChange, int]:
    value, position = _value(data, position, end)
    return (opcode, path, value, _NO_ACL, unpack_int32(data, position)[0], 0), position + 4


def _decode_versioned(opcode: int, path: str, data: bytes, position: int, end: int) -> tuple[PlainChange, int]:
    return (opcode, path, None, _NO_ACL, unpack_int32(data, position)[0], 0), position + 4


def _value(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size = unpack_int32(data, position)[0]
    start = position + 4
    if size == -1:
        return None, start
    stop = start + size
    if not start <= stop <= end:
        raise ProtocolError("data", f"length {size} is negative or exceeds the request")
    return data[start:stop], stop


_Decoder: TypeAlias = Callable[[int, str, bytes, int, int], tuple[PlainChange, int]]
_DECODERS: dict[int, _Decoder] = {
    Opcode.CREATE: _decode_create,
    Opcode.CREATE2: _decode_create,
    Opcode.CREATE_CONTAINER: _decode_create,
    Opcode.CREATE_TTL: _decode_create,
    Opcode.SET_DATA: _decode_set,
    Opcode.DELETE: _decode_versioned,
    Opcode.CHECK: _decode_versioned,
}


def decode_changes(data: bytes, position: int, end: int) -> list[PlainChange]:
    """Decode all operations of a multi.

    :raise ProtocolError, struct.error, UnicodeDecodeError: if the multi is malformed.
    """
    changes: list[PlainChange] = []
    unpack_header = MULTI_HEADER.unpack_from
    while True:
        opcode, done, _ = unpack_header(data, position)
        position += 9
        if done:
            if position != end:
                raise ProtocolError("multi", f"{end - position} bytes too many")
            return changes
        if opcode not in _DECODERS:
            raise ProtocolError("multi", f"operation {opcode} is not allowed in a multi")
        change, position = decode_change(opcode, data, position, end)
        changes.append(change)
