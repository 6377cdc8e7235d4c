"""Functions that generated code calls (varints, tag sections, sizes), and limits on the cost of a message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from struct import Struct
from typing import Any
from uuid import UUID

COST_MAX = 8_000_000
"""Maximum cost of one message, the sum over its arrays and tags; a unit is about 40 bytes of Python objects.

A number in a list costs 1, a record 5 plus its fields (``WireType.cost``).  The limit bounds the memory and time
that a message can take, and still allows a LeaderAndIsr request for 250,000 partitions.
"""

COST_BYTES = 40
"""Estimated bytes of memory per unit of cost."""

TAG_COST = 5
"""Cost of each tag, known or unknown."""

TAGS_MAX = 100
"""Maximum number of tags in one section; the protocol defines fewer than ten."""

STEP_COST = 1000
"""Cost of the elements that a sliced parser or builder handles between two yields: about a tenth of a millisecond."""

LENGTH_MAX = 2**31 - 1
"""Largest valid length, count or tag."""

INLINE_SIZE_MAX = 4096
"""Records of at least this size are sent as a separate buffer instead of being copied into the message."""

Buffer = bytes | bytearray | memoryview


class PrebuiltElements:
    """Prebuilt elements of an array (``Schema.element``), used instead of a list.

    :param count: number of elements.
    :param pieces: their bytes, in order; a piece may hold several elements or a part of one.
    """

    __slots__ = ("count", "pieces")

    def __init__(self, count: int, pieces: Sequence[bytes]) -> None:
        self.count = count
        self.pieces = pieces

    def __len__(self) -> int:
        return self.count

    @property
    def size(self) -> int:
        """Total size in bytes."""
        return sum(map(len, self.pieces))


class MalformedError(Exception):
    """Raised by generated parsers for malformed bytes; ``types`` then parses them again and raises a detailed error."""


class CostLimitExceeded(MalformedError):
    """Raised by generated parsers if a message exceeds their cost limit."""


@cache
def struct_of(codes: str) -> Struct:
    """Return the big-endian ``Struct`` for these codes; the schemas bound the size of the cache."""
    return Struct(">" + codes)


_UVARINTS = [bytes((number,)) for number in range(128)]


def uvarint(number: int) -> bytes:
    """Encode an unsigned varint (KIP-482).

    :param number: at least 0.
    """
    if number < 128:
        return _UVARINTS[number]
    if number < 1 << 14:
        return bytes((number & 127 | 128, number >> 7))
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def uvarint_rest(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint whose first byte has its continuation bit set.

    :param position: position of the second byte.
    :return: the number, and the position after it.
    :raise MalformedError: the number takes more than five bytes or is larger than ``LENGTH_MAX``.
    :raise IndexError: the buffer ends within the number.
    """
    byte = buffer[position]
    if byte < 128:
        return first & 127 | byte << 7, position + 1
    result = first & 127
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            if result > LENGTH_MAX:
                break
            return result, position
    raise MalformedError


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint, and return it with the position after it; errors are those of ``uvarint_rest``."""
    first = buffer[position]
    return (first, position + 1) if first < 128 else uvarint_rest(buffer, position + 1, first)


TagParser = Callable[[Buffer, int, int, int], tuple[Any, int, int]]


def read_tags(
    buffer: Buffer, position: int, size: int, first: int, cost: int, parsers: Mapping[int, TagParser]
) -> tuple[dict[int, Any], int, int]:
    """Read a tag section that is not empty: known tags are parsed, unknown tags are skipped.

    :param position: position after the first byte of the tag count, which is ``first``.
    :param size: size of the buffer.
    :param cost: cost of the message before the section.
    :return: the values of the known tags, the position after the section, and the cost including the section.
    :raise MalformedError: tags are out of order, too many, or have a wrong size.
    """
    count = first
    if first > 127:
        count, position = uvarint_rest(buffer, position, first)
    cost += count * TAG_COST
    if cost > COST_MAX or count > TAGS_MAX:
        raise MalformedError
    values: dict[int, Any] = {}
    last = -1
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        length, position = read_uvarint(buffer, position)
        end = position + length
        if tag <= last or end > size:
            raise MalformedError
        last = tag
        if tag in parsers:
            values[tag], position, cost = parsers[tag](buffer, position, size, cost)
            if position != end:
                raise MalformedError
        position = end
    return values, position, cost


def write_tags(fields: Iterable[tuple[int, Any, Any, Callable[[Any], bytes]]]) -> bytes:
    """Encode the tag section of the fields that differ from their default.

    :param fields: tag, value, default, and the function that builds the value; in ascending order of tags.
    """
    written = [(tag, build(value)) for tag, value, default, build in fields if value != default]
    out = [uvarint(len(written))]
    for tag, payload in written:
        out += uvarint(tag), uvarint(len(payload)), payload
    return b"".join(out)


@lru_cache(maxsize=4096)
def uuid_of(data: bytes) -> UUID:
    """Return a UUID, cached because topic IDs repeat in requests and creating a UUID takes a microsecond."""
    return UUID(bytes=data)


def bytes_size(data: Any) -> int:
    """Return the size of a bytes-like object.

    :raise TypeError: the object is not bytes-like.
    """
    return len(data) if type(data) is bytes else memoryview(data).nbytes


def records_size(records: Any) -> int:
    """Return the size in bytes of records: a bytes-like object, or an object with a ``size`` (a file range)."""
    if records.__class__ is bytes:
        return len(records)
    size: int | None = getattr(records, "size", None)
    return bytes_size(records) if size is None else size
