"""The structural validation of records agrees with the record reader, for all codecs and for damaged bytes."""

from __future__ import annotations

import gzip

import cramjam
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from kreplica.errors import ErrorCode, ProtocolError
from kreplica.storage.log_config import LogConfig
from kreplica.storage.segments.batch_validation import validate
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch, seal
from kreplica.wire.batches import HEADER_SIZE, parse_header
from kreplica.wire.compression import XERIAL_HEADER, Codec, DecompressedTooLarge, compress
from kreplica.wire.record_validation import TimestampRange, check_records
from kreplica.wire.records import Record, iter_records, open_records
from tests.support.kernels import both, without_kernels

NOW_MS = 1_700_000_000_000
BOUND = 64 * 1024
LIBRARIES = {
    "gzip": (Codec.GZIP, gzip.compress),
    "python-snappy": (Codec.SNAPPY, snappy.compress),
    "cramjam snappy": (Codec.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "lz4": (Codec.LZ4, lambda data: lz4.frame.compress(data, block_linked=False)),
    "zstandard": (Codec.ZSTD, lambda data: zstandard.ZstdCompressor().compress(data)),
    **{f"kreplica {codec.name}": (codec, lambda data, codec=codec: compress(codec, data)) for codec in Codec},
}

texts = st.binary(max_size=200)
record_lists = st.lists(
    st.builds(
        Record,
        st.just(NEXT_OFFSET),
        st.integers(0, 2**45),
        st.none() | texts,
        st.none() | texts,
        st.lists(st.tuples(st.text(max_size=70), st.none() | texts), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=150,
)


@given(sent=record_lists, library=st.sampled_from(sorted(LIBRARIES)))
@settings(max_examples=150)
def test_batches_of_all_libraries_are_accepted(sent: list[Record], library: str) -> None:
    """Batches compressed by other libraries pass validation unchanged, with the highest timestamp of their records."""
    codec, pack = LIBRARIES[library]
    plain = build_batch(sent)
    header = parse_header(plain)._replace(attributes=int(codec))
    batch = seal(header, pack(plain[HEADER_SIZE:]))
    validated = validate(batch, LogConfig(), NOW_MS, 100 * 2**20)
    assert validated.rejection is None
    assert bytes(validated) == batch
    walked = both(check_records, plain[HEADER_SIZE:], header, TimestampRange(NOW_MS, NOW_MS))
    assert walked.max_timestamp_ms == max(record.timestamp_ms for record in sent)
    assert walked.without_key == [index for index, record in enumerate(sent) if record.key is None]
    assert [index for index, _ in walked.out_of_range] == [
        index for index, record in enumerate(sent) if record.timestamp_ms != NOW_MS
    ]


@given(sent=record_lists, position=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.booleans())
@settings(max_examples=300)
def test_validation_agrees_with_the_reader(sent: list[Record], position: int, byte: int, cut: bool) -> None:
    """A damaged or truncated section is accepted if, and only if, all its records can be read."""
    batch = build_batch(sent)
    section = bytearray(batch[HEADER_SIZE:])
    position %= len(section)
    if cut:
        del section[position:]
    else:
        section[position] = byte
    damaged = seal(parse_header(batch), bytes(section))
    header = parse_header(damaged)
    try:
        list(iter_records(damaged))
        is_readable = True
    except ProtocolError:
        is_readable = False
    try:
        both(check_records, open_records(damaged, header, BOUND * 100), header)
        passes = True
    except ProtocolError:
        passes = False
    assert passes == is_readable


@given(
    codec=st.sampled_from(list(Codec)[1:]),
    data=st.binary(max_size=300),
    start=st.sampled_from([b"", b"\x1f\x8b\x08\x00", XERIAL_HEADER, b"\x04\x22\x4d\x18\x60\x40", b"\x28\xb5\x2f\xfd"]),
    count=st.integers(1, 50),
)
@settings(max_examples=400)
def test_random_bytes_raise_only_the_typed_error(codec: Codec, data: bytes, start: bytes, count: int) -> None:
    """Random records with a valid CRC are accepted or refused with the typed error."""
    header = parse_header(build_batch([Record(NEXT_OFFSET, NOW_MS, None, b"v", ())]))
    header = header._replace(attributes=int(codec), record_count=count, last_offset_delta=count - 1)
    try:
        validated = validate(seal(header, start + data), LogConfig(), NOW_MS, BOUND)
    except DecompressedTooLarge:
        return
    assert validated.decompressed_size <= BOUND
    if validated.rejection is not None:
        assert validated.rejection.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_long_validation_releases_the_interpreter(codec: Codec) -> None:
    """The Python code releases the interpreter lock every few hundred records; the kernel runs without it."""
    pauses: list[int] = []
    batch = build_batch([Record(NEXT_OFFSET, NOW_MS, None, b"v", ()) for _ in range(5000)], codec=codec)
    with without_kernels():
        validate(batch, LogConfig(), NOW_MS, 2**20, lambda: pauses.append(1))
    assert len(pauses) == 9
