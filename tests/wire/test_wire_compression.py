"""Compression of records: round trips, output of other libraries, and malformed input."""

from __future__ import annotations

import gzip
import pickle
import random
import struct
import subprocess
import sys

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kreplica.errors import ProtocolError
from kreplica.wire.compression import Codec, compress, decompress

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIXED = random.Random(1).randbytes(5_000) + b"abc" * 50_000
MIB = 1024 * 1024


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=400), repeat=st.integers(0, 400))
@settings(max_examples=40)
def test_compression_round_trip(codec: Codec, data: bytes, repeat: int) -> None:
    """Every codec restores the records, even if the size limit is exactly their size."""
    data *= repeat
    for buffer in (compress(codec, data), memoryview(bytearray(compress(codec, data)))):
        assert decompress(codec, buffer, len(data)) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_output_one_byte_above_the_limit_is_refused(codec: Codec) -> None:
    """With a limit of N bytes, records of N + 1 bytes are refused."""
    packed = compress(codec, MIXED)
    assert decompress(codec, packed, len(MIXED)) == MIXED
    with pytest.raises(ProtocolError, match="more than"):
        decompress(codec, packed, len(MIXED) - 1)


def bombs() -> dict[str, tuple[Codec, bytes]]:
    """Return small inputs that decompress to 128 MiB of zeros, with and without a declared size."""
    zeros = bytes(128 * MIB)
    raw_snappy = bytes(cramjam.snappy.compress_raw(bytes(32 * MIB)))
    blocks = (struct.pack(">i", len(raw_snappy)) + raw_snappy) * 4
    return {
        "gzip": (Codec.GZIP, compress(Codec.GZIP, zeros)),
        "snappy, xerial": (Codec.SNAPPY, b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + blocks),
        "snappy, raw": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(zeros))),
        "snappy, size without content": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00a"),
        "lz4": (Codec.LZ4, lz4.frame.compress(zeros, store_size=False)),
        "lz4, declared": (Codec.LZ4, lz4.frame.compress(zeros, store_size=True)),
        "zstd": (Codec.ZSTD, zstd_of_unknown_size(zeros)),
        "zstd, 128 frames": (Codec.ZSTD, bytes(cramjam.zstd.compress(bytes(MIB))) * 128),
        "zstd, declared": (Codec.ZSTD, bytes(cramjam.zstd.compress(zeros))),
        "zstd, declared falsely": (Codec.ZSTD, declare_zstd_size(zstd_of_unknown_size(zeros), 10)),
    }


def zstd_of_unknown_size(data: bytes) -> bytes:
    """Return a zstd frame without a content size in its header, as streaming writers produce."""
    compressor = cramjam.zstd.Compressor()
    compressor.compress(data)
    return bytes(compressor.finish())


def declare_zstd_size(frame: bytes, size: int) -> bytes:
    """Return the frame with an eight-byte content size added to its header."""
    descriptor, window = frame[4], frame[5]
    assert descriptor & 0b1110_0011 == 0
    return frame[:4] + bytes((descriptor | 0b1100_0000, window)) + struct.pack("<Q", size) + frame[6:]


MEASURE = """
import pickle, resource, sys
from kreplica.errors import ProtocolError
from kreplica.wire.compression import decompress

for name, (codec, data) in pickle.load(sys.stdin.buffer).items():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        decompress(codec, data, 4 * 1024 * 1024)
    except ProtocolError:
        growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"{name}: {growth} KiB" if growth > 12 * 1024 else "refused")
    else:
        print(f"{name}: accepted")
"""


def test_decompression_bomb_uses_only_the_allowed_memory() -> None:
    """Small inputs that decompress to far more than the limit are refused; memory stays near the limit."""
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE], input=pickle.dumps(bombs()), capture_output=True, check=True, timeout=60
    )
    assert measured.stdout.decode().splitlines() == ["refused"] * len(bombs())


def test_zstd_reads_a_declared_size() -> None:
    """Frames of other writers may declare the size of their content."""
    frame = zstd_of_unknown_size(MIXED)
    assert decompress(Codec.ZSTD, frame, len(MIXED)) == MIXED
    assert decompress(Codec.ZSTD, declare_zstd_size(frame, len(MIXED)), len(MIXED)) == MIXED
    for size in (0, 100, 255, 256, 60_000, 65_536 + 256):
        assert decompress(Codec.ZSTD, bytes(cramjam.zstd.compress(bytes(size))), size) == bytes(size)
    for wrong in (0, 1, len(MIXED) - 1, len(MIXED) + 1, 2**64 - 1):
        with pytest.raises(ProtocolError):
            decompress(Codec.ZSTD, declare_zstd_size(frame, wrong), len(MIXED) + 1)


def test_snappy_reads_raw_and_writes_java_blocks() -> None:
    """librdkafka's raw snappy can be read; output has the header and block lengths that Java expects."""
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(MIXED)), len(MIXED)) == MIXED
    packed = compress(Codec.SNAPPY, MIXED)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (length,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + length])) == MIXED[: 32 * 1024]


def test_lz4_is_written_for_java() -> None:
    """Output has independent blocks, because Java reads no others; frames of other writers can be read."""
    packed = compress(Codec.LZ4, MIXED)
    info = lz4.frame.get_frame_info(packed)
    assert (info["block_linked"], info["block_size"], info["content_size"]) == (False, 64 * 1024, 0)
    for linked in (True, False):
        other = lz4.frame.compress(MIXED, block_linked=linked, content_checksum=True, block_checksum=True)
        assert decompress(Codec.LZ4, other, len(MIXED)) == MIXED


def test_gzip_is_read_by_the_standard_library() -> None:
    assert gzip.decompress(compress(Codec.GZIP, MIXED)) == MIXED
    assert decompress(Codec.GZIP, gzip.compress(MIXED), len(MIXED)) == MIXED


@pytest.mark.parametrize("codec", COMPRESSING)
def test_truncation_at_any_byte_is_refused(codec: Codec) -> None:
    """Truncated input raises an error instead of returning fewer records."""
    data = MIXED[:600]
    packed = compress(codec, data)
    whole_without_blocks = 16 if codec is Codec.SNAPPY else -1
    for size in range(len(packed)):
        if size != whole_without_blocks:
            with pytest.raises(ProtocolError):
                decompress(codec, packed[:size], MIB)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_corrupt_input_raises_one_typed_error(codec: Codec) -> None:
    """For any input, decompression returns bytes within the limit or raises ProtocolError."""
    generator = random.Random(7)
    packed = compress(codec, MIXED[:3_000] + bytes(3_000))
    refused = 0
    for _ in range(1_500):
        mutated = bytearray(packed)
        for _ in range(generator.randint(1, 4)):
            mutated[generator.randrange(len(mutated))] = generator.randrange(256)
        try:
            assert len(decompress(codec, mutated, 64 * 1024)) <= 64 * 1024
        except ProtocolError:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_bytes_after_the_end_are_refused(codec: Codec) -> None:
    """A second stream is refused, because other readers would ignore its records."""
    packed = compress(codec, b"abc")
    for tail in (b"x", packed):
        with pytest.raises(ProtocolError, match="after its end"):
            decompress(codec, packed + tail, MIB)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_named(codec: int) -> None:
    """The error contains the codec's number."""
    for function in (lambda: compress(codec, b""), lambda: decompress(codec, b"", 1)):
        with pytest.raises(ProtocolError, match=f"codec {codec}"):
            function()
