"""Primitives of the handwritten codecs: strings, variable-length numbers, arrays of numbers."""

from __future__ import annotations

from struct import Struct

SHORT, INT, PAIR, BYTE = Struct(">h"), Struct(">i"), Struct(">ii"), Struct(">B")
INTS = [Struct(f">{count}i") for count in range(17)]


def text(data: bytes, position: int) -> tuple[str | None, int]:
    """Read a nullable string."""
    start = position + 2
    length: int = SHORT.unpack_from(data, position)[0]
    return (data[start : start + length].decode(), start + length) if length >= 0 else (None, start)


def uvarint(data: bytes, position: int) -> tuple[int, int]:
    """Read an unsigned varint (KIP-482)."""
    number = shift = 0
    while (byte := data[position]) > 127:
        number |= (byte & 127) << shift
        shift += 7
        position += 1
    return number | byte << shift, position + 1


def compact_text(data: bytes, position: int) -> tuple[str | None, int]:
    """Read a nullable string in the flexible encoding."""
    length, start = (data[position], position + 1) if data[position] < 128 else uvarint(data, position)
    end = start + length - 1
    return (data[start:end].decode(), end) if length else (None, start)


def ints(data: bytes, position: int) -> tuple[list[int], int]:
    """Read an array of 4-byte numbers."""
    count: int = INT.unpack_from(data, position)[0]
    return [*INTS[count].unpack_from(data, position + 4)], position + 4 + 4 * count


def compact_ints(data: bytes, position: int) -> tuple[list[int], int]:
    """Read an array of fewer than 17 numbers in the flexible encoding."""
    count = data[position] - 1
    return [*INTS[count].unpack_from(data, position + 1)], position + 1 + 4 * count


def put_text(value: str | None) -> bytes:
    """Write a nullable string."""
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return SHORT.pack(len(data)) + data


def put_uvarint(number: int) -> bytes:
    """Write an unsigned varint."""
    if number < 128:
        return BYTE.pack(number)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def put_compact_text(value: str | None) -> bytes:
    """Write a nullable string in the flexible encoding."""
    if value is None:
        return b"\0"
    data = value.encode()
    return put_uvarint(len(data) + 1) + data


def put_ints(values: list[int]) -> bytes:
    """Write an array of fewer than 17 4-byte numbers."""
    return INT.pack(len(values)) + INTS[len(values)].pack(*values)


def put_compact_ints(values: list[int]) -> bytes:
    """Write an array of fewer than 17 4-byte numbers in the flexible encoding."""
    return BYTE.pack(len(values) + 1) + INTS[len(values)].pack(*values)
