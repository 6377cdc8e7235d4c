"""Encodes (``encode_x``, for the server) and decodes (``decode_x``, for the client) response bodies.

Decoders receive the position of the body as (buffer, start, end) and return plain values.  The decoders of the most
frequent responses (stat, data, results of a multi) unpack them directly; the others use ``Reader``.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, TypeAlias

from kreplica.errors import ProtocolError
from kreplica.zookeeper.errors import ZooKeeperError, error_of
from kreplica.zookeeper.jute import (
    Reader,
    pack_buffer,
    pack_int32,
    pack_text,
    pack_texts,
    unpack_int32,
)
from kreplica.zookeeper.operations import MULTI_HEADER
from kreplica.zookeeper.records import STAT, Acl, Opcode, Stat, new_stat, pack_acl, read_acl, read_stat

_STAT_SIZE = STAT.size
_unpack_stat = STAT.unpack_from


class Created(NamedTuple):
    """Result of a create.

    :param path: path of the znode, including the sequence number if one was requested.
    :param stat: None if the stat was not requested.
    """

    path: str
    stat: Stat | None


# Result of a successful operation of a multi: Created for a create, Stat for a setData, None for a delete or check.
OperationResult: TypeAlias = Created | Stat | None
# Result of one read of a multi-read.
ReadResult: TypeAlias = tuple[bytes, Stat] | list[str] | ZooKeeperError


def encode_empty() -> bytes:
    """Encode the response to delete, ping, close, setWatches and removeWatches."""
    return b""


def decode_empty(data: bytes, start: int, end: int) -> None:
    if start != end:
        raise ProtocolError("response", f"{end - start} bytes too many")


def encode_stat(stat: Stat) -> bytes:
    """Encode the response to exists, setData and setACL."""
    return STAT.pack(*stat)


def decode_stat(data: bytes, start: int, end: int) -> Stat:
    if end - start != _STAT_SIZE:
        raise ProtocolError("stat", f"{end - start} bytes instead of {_STAT_SIZE}")
    return new_stat(_unpack_stat(data, start))


def encode_data(data: bytes | None, stat: Stat) -> bytes:
    """Encode the response to getData."""
    return pack_buffer(data) + STAT.pack(*stat)


def decode_data(data: bytes, start: int, end: int) -> tuple[bytes, Stat]:
    """Decode the response to getData; for a znode without data, return empty bytes."""
    data_at, stat_at = start + 4, end - _STAT_SIZE
    if stat_at < data_at:
        raise ProtocolError("getData", f"only {end - start} bytes")
    size: int = unpack_int32(data, start)[0]
    if size != stat_at - data_at and (size >= 0 or stat_at != data_at):
        raise ProtocolError("getData", f"{size} bytes of data in {stat_at - data_at}")
    return data[data_at:stat_at], new_stat(_unpack_stat(data, stat_at))


def encode_created(created: Created) -> bytes:
    """Encode the response to create2, or to create if the stat is None."""
    path = pack_text(created.path)
    return path if created.stat is None else path + STAT.pack(*created.stat)


def decode_created(data: bytes, start: int, end: int) -> Created:
    """Decode the response to create2."""
    reader = Reader(data, start, end, "create")
    created = Created(reader.text(), read_stat(reader))
    reader.finish()
    return created


def encode_path(path: str) -> bytes:
    """Encode the response to sync and to create without stat."""
    return pack_text(path)


def decode_path(data: bytes, start: int, end: int) -> str:
    reader = Reader(data, start, end, "path")
    path = reader.text()
    reader.finish()
    return path


def encode_children(names: Sequence[str]) -> bytes:
    """Encode the response to getChildren and getEphemerals."""
    return pack_texts(names)


def decode_children(data: bytes, start: int, end: int) -> list[str]:
    reader = Reader(data, start, end, "getChildren")
    names = reader.texts()
    reader.finish()
    return names


def encode_children_and_stat(names: Sequence[str], stat: Stat) -> bytes:
    """Encode the response to getChildren2."""
    return pack_texts(names) + STAT.pack(*stat)


def decode_children_and_stat(data: bytes, start: int, end: int) -> tuple[list[str], Stat]:
    reader = Reader(data, start, end, "getChildren2")
    result = reader.texts(), read_stat(reader)
    reader.finish()
    return result


def encode_acl(acl: tuple[Acl, ...], stat: Stat) -> bytes:
    """Encode the response to getACL."""
    return pack_acl(acl) + STAT.pack(*stat)


def decode_acl(data: bytes, start: int, end: int) -> tuple[tuple[Acl, ...], Stat]:
    reader = Reader(data, start, end, "getACL")
    result = read_acl(reader), read_stat(reader)
    reader.finish()
    return result


def encode_count(count: int) -> bytes:
    """Encode the response to getAllChildrenNumber, and to addWatch, which returns 0."""
    return pack_int32(count)


def decode_count(data: bytes, start: int, end: int) -> int:
    reader = Reader(data, start, end, "count")
    count = reader.int32()
    reader.finish()
    return count


def encode_token(token: bytes | None) -> bytes:
    """Encode the response to a SASL request."""
    return pack_buffer(token)


def decode_token(data: bytes, start: int, end: int) -> bytes:
    reader = Reader(data, start, end, "sasl")
    token = reader.buffer() or b""
    reader.finish()
    return token


_MULTI_END = MULTI_HEADER.pack(-1, True, -1)
_SET_DATA_HEADER = MULTI_HEADER.pack(Opcode.SET_DATA, False, 0)


def encode_multi_results(results: Sequence[tuple[Opcode, OperationResult]]) -> bytes:
    """Encode the response to a successful multi: each operation's code and result."""
    pieces = []
    for opcode, result in results:
        if opcode is Opcode.SET_DATA and isinstance(result, Stat):
            pieces.append(_SET_DATA_HEADER + STAT.pack(*result))
            continue
        pieces.append(MULTI_HEADER.pack(opcode, False, 0))
        if isinstance(result, Created):
            pieces.append(encode_created(result))
    pieces.append(_MULTI_END)
    return b"".join(pieces)


def encode_multi_failure(codes: Sequence[int]) -> bytes:
    """Encode the response to a failed multi.

    :param codes: one error code per operation: 0 before the one that failed, ``RuntimeInconsistency`` after it.
    """
    return b"".join([*(_encode_error(code) for code in codes), _MULTI_END])


def _encode_error(code: int) -> bytes:
    return MULTI_HEADER.pack(-1, False, code) + pack_int32(code)


def decode_multi_results(data: bytes, start: int, end: int) -> list[OperationResult | int]:
    """Decode the response to a multi: one result per operation or, if it failed, one error code per operation."""
    results: list[OperationResult | int] = []
    append, unpack_header, unpack_stat, stat_of = results.append, MULTI_HEADER.unpack_from, STAT.unpack_from, new_stat
    position, last = start, end - MULTI_HEADER.size
    while position <= last:
        opcode, done, _error = unpack_header(data, position)
        position += 9
        if opcode == 5 and position + 68 <= last:  # fast path: setData operations occur by the thousand
            append(stat_of(unpack_stat(data, position)))
            position += 68
            if len(results) == _FEW:
                sets = _remaining_sets(data, position, last)
                results += sets
                position += len(sets) * _SET_DATA_RESULT.size
        elif opcode in _WITHOUT_RESULT:
            append(None)
        elif done:
            if position != end:
                raise ProtocolError("multi", f"{end - position} bytes too many")
            return results
        else:
            reader = Reader(data, position, end, "multi")
            append(_decode_multi_result(opcode, reader))
            position = reader.position
    raise ProtocolError("multi", "the header that ends the multi is missing")


_WITHOUT_RESULT = frozenset({int(Opcode.DELETE), int(Opcode.CHECK)})
# Number of results decoded individually before checking whether all remaining ones are results of setData.
_FEW = 20
# Result of a setData in a multi; the header is checked separately.
_SET_DATA_RESULT = Struct(f">{MULTI_HEADER.size}x{STAT.format[1:]}")


def _remaining_sets(data: bytes, start: int, end: int) -> list[Stat]:
    """Decode the results between two positions if all belong to setData; otherwise return an empty list."""
    size = _SET_DATA_RESULT.size
    count, rest = divmod(end - start, size)
    # Each strided slice contains the byte at one offset of every header.
    if rest or any(data[start + at : end : size] != bytes((byte,)) * count for at, byte in enumerate(_SET_DATA_HEADER)):
        return []
    return list(map(new_stat, _SET_DATA_RESULT.iter_unpack(memoryview(data)[start:end])))


def _decode_multi_result(opcode: int, reader: Reader) -> OperationResult | int:
    if opcode == Opcode.CREATE2:
        return Created(reader.text(), read_stat(reader))
    if opcode == Opcode.CREATE:
        return Created(reader.text(), None)
    if opcode == -1:
        return reader.int32()
    raise ProtocolError(reader.name, f"unexpected result of operation {opcode}")


def encode_multi_read_results(results: Sequence[ReadResult]) -> bytes:
    """Encode the response to a multi-read, in which each read may have failed separately."""
    pieces = []
    for result in results:
        if isinstance(result, list):
            pieces.append(MULTI_HEADER.pack(Opcode.GET_CHILDREN, False, 0) + pack_texts(result))
        elif isinstance(result, ZooKeeperError):
            pieces.append(_encode_error(result.code))
        else:
            pieces.append(MULTI_HEADER.pack(Opcode.GET_DATA, False, 0) + encode_data(*result))
    pieces.append(_MULTI_END)
    return b"".join(pieces)


def decode_multi_read_results(data: bytes, start: int, end: int, paths: Sequence[str]) -> list[ReadResult]:
    """Decode the response to a multi-read.

    :param paths: paths of the reads, in order; used in errors.
    :raise ProtocolError: if the data is malformed or the number of results differs from the number of reads.
    """
    results: list[ReadResult] = []
    reader = Reader(data, start, end, "multiRead")
    for path in paths:
        opcode, done, _error = reader.unpack(MULTI_HEADER)
        if done:
            break
        if opcode == Opcode.GET_DATA:
            results.append((reader.buffer() or b"", read_stat(reader)))
        elif opcode == Opcode.GET_CHILDREN:
            results.append(reader.texts())
        elif opcode == -1:
            results.append(error_of(reader.int32(), path))
        else:
            raise ProtocolError("multiRead", f"unexpected result of operation {opcode}")
    if len(results) != len(paths) or reader.unpack(MULTI_HEADER)[1] != 1:
        raise ProtocolError("multiRead", f"{len(paths)} results expected")
    reader.finish()
    return results
