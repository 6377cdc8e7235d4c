"""Compresses and decompresses the records of batches, with a limit on the decompressed size.

Compressed data has the formats of Java clients: gzip; snappy in the framing of the xerial library (raw snappy, which
other clients send, is also read); lz4 frames of independent 64 KiB blocks, the only ones that Java reads; zstd
(KIP-110).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import TypeVar

import cramjam
import lz4.frame

from kreplica.errors import ProtocolError

Bytes = bytes | bytearray | memoryview
T = TypeVar("T")

PATH = "RecordBatch.records"
CHUNK_SIZE = 64 * 1024
PIECE_SIZE_MAX = 1024 * 1024
"""Maximum number of bytes that one call of a decompressor may produce."""

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_SIZE = 32 * 1024
_BLOCK_LENGTH = Struct(">i")

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_GUESS_SIZE_MIN = 256 * 1024
ZSTD_GUESS_RATIO = 8
_OUTPUT_FULL = "failed to write whole buffer"

SNAPPY_RATIO_MAX = 22
"""Maximum expansion of snappy data: a copy element of 3 bytes produces at most 64."""

LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_FLAGS_POSITION = 4
_LZ4_INDEPENDENT_BLOCKS_BIT = 0x20
_LZ4_CONTENT_SIZE_BIT = 0x08
_LZ4_CONTENT_SIZE = Struct("<Q")
_LZ4_CONTENT_SIZE_POSITION = 6

_GZIP_WBITS = 31
_GZIP_LEVEL = 6


class DecompressedTooLarge(ProtocolError):
    """The decompressed data, or its declared size, exceeds the limit."""


class Codec(IntEnum):
    """Compression codec of a batch: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Bytes) -> bytes:
    """Compress with a ``Codec``.

    :raise ProtocolError: the codec is unknown.
    """
    if codec == Codec.NONE:
        return bytes(data)
    return _codec(_COMPRESS, codec)(data)


def decompress(codec: int, data: Bytes, size_max: int) -> bytes:
    """Decompress with a ``Codec``.

    :param size_max: maximum decompressed bytes; at most one chunk more is allocated.
    :raise DecompressedTooLarge: the data exceeds ``size_max``.
    :raise ProtocolError: the codec is unknown, or the data is corrupt or truncated.
    """
    return bytes(decompress_to_buffer(codec, data, size_max))


def decompress_to_buffer(codec: int, data: Bytes, size_max: int) -> bytes | bytearray:
    """Decompress like ``decompress``, but without copying the result to immutable bytes."""
    if codec == Codec.NONE:
        if len(data) > size_max:
            raise _too_large(size_max)
        return bytes(data)
    return _codec(_DECOMPRESS, codec)(data, size_max)


def check_readable_by_java(codec: int, data: Bytes) -> None:
    """Check that Java clients can decompress the data: they read only lz4 frames of independent blocks.

    :raise ProtocolError: they cannot.
    """
    is_lz4 = codec == Codec.LZ4 and len(data) > _LZ4_FLAGS_POSITION
    if is_lz4 and not data[_LZ4_FLAGS_POSITION] & _LZ4_INDEPENDENT_BLOCKS_BIT:
        raise _corrupt("lz4", "blocks that depend on each other are not supported")


def _codec(functions: dict[int, Callable[..., T]], codec: int) -> Callable[..., T]:
    function = functions.get(codec)
    if function is None:
        raise ProtocolError("RecordBatch.attributes", f"unknown compression codec {codec}")
    return function


def _compress_gzip(data: Bytes) -> bytes:
    return zlib.compress(data, _GZIP_LEVEL, wbits=_GZIP_WBITS)


def _decompress_gzip(data: Bytes, size_max: int) -> bytes | bytearray:
    """Decompress one gzip member in chunks; the size in its trailer is not trusted."""
    member = zlib.decompressobj(wbits=_GZIP_WBITS)
    try:
        output: bytes | bytearray = member.decompress(data, min(CHUNK_SIZE, size_max + 1))
        if not member.eof:
            output = bytearray(output)
            while not member.eof and len(output) <= size_max:
                piece = member.decompress(member.unconsumed_tail, _next_size(len(output), size_max))
                if not piece and not member.eof:
                    raise _corrupt("gzip", "truncated")
                output += piece
    except zlib.error as error:
        raise _corrupt("gzip", error) from error
    if len(output) > size_max:
        raise _too_large(size_max)
    if member.unused_data:
        raise _corrupt("gzip", f"{len(member.unused_data)} bytes after its end")
    return output


def _next_size(size: int, size_max: int) -> int:
    """Return the size of the next chunk after ``size`` bytes; it may exceed the limit by one byte, to detect
    larger data."""
    return min(max(size, CHUNK_SIZE), PIECE_SIZE_MAX, size_max + 1 - size)


def _compress_snappy(data: Bytes) -> bytes:
    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_SIZE]))
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Bytes, size_max: int) -> bytearray:
    view = memoryview(data)
    blocks = list(_xerial_blocks(view)) if view[: len(XERIAL_MAGIC)] == XERIAL_MAGIC else [view]
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        if sum(sizes) > len(view) * SNAPPY_RATIO_MAX:
            raise _corrupt("snappy", f"{len(view)} bytes cannot decompress to the declared {sum(sizes)} bytes")
        if sum(sizes) > size_max:
            raise _too_large(size_max)
        output = bytearray(sum(sizes))
        position = 0
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, memoryview(output)[position : position + size])
            position += size
    except cramjam.DecompressionError as error:
        raise _corrupt("snappy", error) from error
    return output


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield the raw blocks after the xerial header, each prefixed by its length (int32)."""
    position = len(XERIAL_HEADER)
    if len(view) < position:
        raise _corrupt("snappy", "the header is truncated")
    while position < len(view):
        try:
            (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        except StructError as error:
            raise _corrupt("snappy", "the length of a block is truncated") from error
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - position:
            raise _corrupt("snappy", f"a block has {length} bytes, but {len(view) - position} remain")
        yield view[position : position + length]
        position += length


def _compress_lz4(data: Bytes) -> bytes:
    compressed: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    return compressed


def _decompress_lz4(data: Bytes, size_max: int) -> bytes | bytearray:
    """Decompress one lz4 frame in chunks."""
    _check_lz4_header(data, size_max)
    frame = lz4.frame.LZ4FrameDecompressor()
    try:
        output: bytes | bytearray = frame.decompress(data, max_length=min(CHUNK_SIZE, size_max + 1))
        if not frame.eof:
            output = bytearray(output)
            while not frame.eof and len(output) <= size_max:
                piece = frame.decompress(b"", max_length=_next_size(len(output), size_max))
                if not piece and not frame.eof:
                    raise _corrupt("lz4", "truncated")
                output += piece
    except RuntimeError as error:
        raise _corrupt("lz4", error) from error
    if len(output) > size_max:
        raise _too_large(size_max)
    if frame.unused_data:
        raise _corrupt("lz4", f"{len(frame.unused_data)} bytes after its end")
    return output


def _check_lz4_header(data: Bytes, size_max: int) -> None:
    """Check the frame descriptor before decompressing; the library verifies its checksum."""
    if data[:4] != LZ4_MAGIC or len(data) < _LZ4_CONTENT_SIZE_POSITION:
        raise _corrupt("lz4", "no frame header")
    has_size = data[_LZ4_FLAGS_POSITION] & _LZ4_CONTENT_SIZE_BIT
    if has_size and len(data) >= _LZ4_CONTENT_SIZE_POSITION + _LZ4_CONTENT_SIZE.size:
        (declared,) = _LZ4_CONTENT_SIZE.unpack_from(data, _LZ4_CONTENT_SIZE_POSITION)
        if declared > size_max:
            raise _too_large(size_max)


def _compress_zstd(data: Bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def _decompress_zstd(data: Bytes, size_max: int) -> bytearray:
    """Decompress into a buffer of the declared size, or into growing buffers if it is absent or wrong."""
    declared = _zstd_declared_size(data)
    if declared is not None and declared > size_max:
        raise _too_large(size_max)
    guess = max(len(data) * ZSTD_GUESS_RATIO, ZSTD_GUESS_SIZE_MIN) if declared is None else declared
    while True:
        output = bytearray(min(guess, size_max))
        try:
            size = cramjam.zstd.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise _corrupt("zstd", error) from error
        else:
            del output[size:]
            return output
        if len(output) >= size_max:
            raise _too_large(size_max)
        guess = max(len(output) * ZSTD_GUESS_RATIO, ZSTD_GUESS_SIZE_MIN)


def _zstd_declared_size(data: Bytes) -> int | None:
    """Return the content size of the first frame (RFC 8878, 3.1.1.1), or None if absent."""
    if data[:4] != ZSTD_MAGIC or len(data) < 6:
        return None
    descriptor = data[4]
    single_segment = descriptor & 0x20
    size_length = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    if size_length == 0:
        return None
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 0x03]
    declared = int.from_bytes(data[start : start + size_length], "little")
    return declared + 256 if size_length == 2 else declared


def _too_large(size_max: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(PATH, f"more than {size_max} bytes when decompressed")


def _corrupt(codec: str, reason: object) -> ProtocolError:
    return ProtocolError(PATH, f"{codec}: {reason}")


_COMPRESS: dict[int, Callable[..., bytes]] = {
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESS: dict[int, Callable[..., bytes | bytearray]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
