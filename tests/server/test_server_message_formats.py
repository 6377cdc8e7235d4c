"""Batches in message formats 0 and 1 are converted to format 2, as in Kafka, or rejected with Kafka's error."""

from __future__ import annotations

import struct
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from kreplica.errors import KafkaError
from kreplica.wire.batches import check_batch, parse_header
from kreplica.wire.compression import DecompressedTooLarge
from kreplica.wire.message_sets import convert
from kreplica.wire.records import iter_records
from tests.support.broker_scene import NOW_MS, Scene, on_broker

RECORDS = [(NOW_MS + 5, b"a", b"first"), (NOW_MS + 9, None, b"second"), (NOW_MS + 7, b"c", None), (NOW_MS, b"", b"")]
GZIP, SNAPPY, LZ4 = 1, 2, 3
VERSION_OF_FORMAT = {0: 0, 1: 2}


def message_set(magic: int, codec: int = 0, records: list[tuple[int, bytes | None, bytes | None]] = RECORDS) -> bytes:
    """Return a message set as kafka-python builds it."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for number, (timestamp, key, value) in enumerate(records):
        builder.append(number, timestamp, key, value)
    return bytes(builder.build())


def message(magic: int, attributes: int = 0, value: bytes = b"v") -> bytes:
    """Return one message with full control over its fields."""
    body = struct.pack(">BB", magic, attributes) + (struct.pack(">q", NOW_MS) if magic else b"")
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, crc32(body)) + body


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, 0), (0, GZIP), (0, SNAPPY), (1, 0), (1, GZIP), (1, SNAPPY), (1, LZ4)]
)
def test_old_message_formats_are_stored_as_format_2(tmp_path: Path, magic: int, codec: int) -> None:
    """Keys, values, codec and, in format 1, timestamps are unchanged."""

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        for base_offset in (0, len(RECORDS)):
            row = await scene.produce("t", message_set(magic, codec), version=VERSION_OF_FORMAT[magic])
            assert (row["error_code"], row["base_offset"]) == (0, base_offset)
        stored = bytes((await scene.fetch("t", 0))["records"])
        assert check_batch(stored[: parse_header(stored).size]).codec == codec
        assert [record[:4] for record in iter_records(stored)] == [
            (offset, time if magic else -1, key, value) for offset, (time, key, value) in enumerate(RECORDS)
        ]

    on_broker(tmp_path, scenario)


def test_errors_of_invalid_old_messages(tmp_path: Path) -> None:
    """Each fault has its own error in every version that supports these formats; newer versions reject the formats."""
    good = message(1)
    damaged = good[:-1] + b"X"
    cases = [
        (damaged, 2),
        (good[:-1], 2),
        (good + b"\x00" * 5, 2),
        (message(1, 8), 32),
        (message(1, GZIP, b"\x02" * 18), 87),
        (message(1, GZIP, b"\x02" * 18) + good, 87),
        (message(1, 4), 76),
        (message(0, SNAPPY, b"\xff\xff\xff\xff\x07\x00a"), 87),
    ]

    async def scenario(scene: Scene) -> None:
        await scene.make_topic("t")
        await scene.make_topic("compacted", cleanup_policy="compact")
        for number, (data, code) in enumerate(cases):
            for version in (0, 1, 2):
                row = await scene.produce("t", data, version=version)
                assert row["error_code"] == code, (number, version, row)
        assert (await scene.produce("compacted", good, version=2))["error_code"] == 87
        for byte in range(256):
            foreign = message(1, 0, bytes((byte,)) * 40)
            assert (await scene.produce("t", foreign, version=9))["error_code"] == 87
        assert (await scene.produce("t", good, version=2))["base_offset"] == 0

    on_broker(tmp_path, scenario)


@given(data=st.binary(max_size=80), magic=st.sampled_from([0, 1]), codec=st.integers(0, 7), position=st.integers(0, 99))
@settings(max_examples=300)
def test_damaged_message_sets_are_converted_or_refused(data: bytes, magic: int, codec: int, position: int) -> None:
    """Conversion raises only the errors that map to an error code."""
    damaged = bytearray(message(magic, codec, data) + message(magic))
    damaged[position % len(damaged)] ^= 0x41
    for records in (message(magic, codec, data), bytes(damaged), bytes(damaged[:position])):
        try:
            converted = convert(records, 4096)
        except (KafkaError, DecompressedTooLarge):
            continue
        assert len(list(iter_records(converted))) == check_batch(converted).record_count
