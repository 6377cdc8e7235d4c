"""Batch headers: golden bytes, a leader's validation, changes in place."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kreplica.errors import ErrorCode, KafkaError, ProtocolError
from kreplica.wire.batch_building import build_batch, seal
from kreplica.wire.batches import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    check_batch,
    iter_headers,
    last_header,
    parse_header,
    stamp,
    stamp_log_append_time,
    stamp_max_timestamp,
    verify_crc,
)
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.records import Record, iter_records

GOLDEN = bytes.fromhex(
    "0000000000000000"  # base offset 0
    "00000045"  # length 69: 49 of header, 20 of records
    "ffffffff"  # leader epoch -1
    "02"  # magic 2
    "22b77607"  # CRC-32C of the following bytes
    "0010"  # attributes: transactional
    "00000001"  # last offset delta 1
    "0000018bcfe56800"  # base timestamp 1700000000000
    "0000018bcfe5684b"  # max timestamp 75 ms later
    "0000000000000007"  # producer id 7
    "0003"  # producer epoch 3
    "00000029"  # base sequence 41
    "00000002"  # two records
    "0e 00 00 00 02 6b 01 00"  # 7 bytes: attributes, delta 0, offset 0, key "k", null value, no headers
    "16 00 9601 02 01 00 02 02 61 02 62"  # 11 bytes: attributes, 75 ms later, offset 1, no key, "", a header a=b
)
RECORDS = [Record(0, 1_700_000_000_000, b"k", None), Record(1, 1_700_000_000_075, None, b"", (("a", b"b"),))]


def golden_with(**fields: int) -> bytes:
    """Return the golden batch with other values of header fields and a matching CRC."""
    return seal(parse_header(GOLDEN)._replace(**fields), GOLDEN[HEADER_SIZE:])


def test_golden_bytes() -> None:
    """A built batch equals the bytes that Kafka's documentation describes."""
    built = build_batch(RECORDS, producer_id=7, producer_epoch=3, base_sequence=41, transactional=True)
    assert built.hex() == GOLDEN.hex()
    assert list(iter_records(GOLDEN)) == RECORDS


def test_header_fields() -> None:
    """Sizes, offsets, sequences and flags are read from the header alone."""
    header = parse_header(b"xx" + GOLDEN, 2)
    assert (header.size, header.last_offset, header.next_offset, header.last_sequence) == (len(GOLDEN), 1, 2, 42)
    assert (header.codec, header.is_transactional, header.is_control) == (0, True, False)
    assert (header.has_producer_id, header.has_delete_horizon) == (True, False)
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert GOLDEN[ATTRIBUTES_POSITION] == header.attributes == TRANSACTIONAL_BIT


@pytest.mark.parametrize(("base", "delta", "last"), [(2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (-1, 5, -1)])
def test_sequences_wrap_to_zero(base: int, delta: int, last: int) -> None:
    """A sequence of 2**31 - 1 is followed by 0, and a batch without a sequence has no last sequence."""
    assert parse_header(golden_with(base_sequence=base, last_offset_delta=delta)).last_sequence == last


def test_iteration_over_fetched_batches() -> None:
    """A client reads all complete batches of a fetch, wherever the broker truncated the last one (KIP-74)."""
    three = GOLDEN * 3
    size = len(GOLDEN)
    for cut in range(len(three) + 1):
        positions = [position for position, _ in iter_headers(three[:cut], incomplete_last=True)]
        assert positions == [0, size, 2 * size][: cut // size]
        assert last_header(three[:cut]) == (parse_header(GOLDEN) if positions else None)
        if cut % size:
            with pytest.raises(ProtocolError):
                list(iter_headers(three[:cut]))
        else:
            assert [header for _, header in iter_headers(three[:cut])] == [parse_header(GOLDEN)] * (cut // size)


@pytest.mark.parametrize("length", [-(2**31), -12, -1, 0, 48])
def test_impossible_length_is_an_error(length: int) -> None:
    """Lengths below that of a header are refused even if truncation is tolerated, so an iteration always advances."""
    bad = GOLDEN[:8] + length.to_bytes(4, "big", signed=True) + GOLDEN[12:]
    with pytest.raises(ProtocolError, match="length"):
        list(iter_headers(GOLDEN + bad, incomplete_last=True))
    with pytest.raises(ProtocolError, match="length"):
        last_header(GOLDEN + bad)


def test_crc_detects_changed_bytes() -> None:
    """The CRC covers every byte that the producer wrote, but not the leader's offset and epoch."""
    header = parse_header(GOLDEN)
    assert verify_crc(b"x" + GOLDEN, header, 1)
    assert not verify_crc(GOLDEN[:-1], header)
    for position in range(21, len(GOLDEN)):
        wrong = bytearray(GOLDEN)
        wrong[position] ^= 0x10
        assert not verify_crc(wrong, header)
        with pytest.raises(KafkaError) as error:
            check_batch(wrong)
        assert error.value.code is ErrorCode.CORRUPT_MESSAGE


def test_leader_accepts_valid_batches() -> None:
    """Batches of clients, in any kind of memory, are accepted and their header is returned."""
    for buffer in (GOLDEN, bytearray(GOLDEN), memoryview(GOLDEN)):
        assert check_batch(buffer) == parse_header(GOLDEN)


@pytest.mark.parametrize(
    "fields",
    [
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "attributes": 0},
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": 0, "attributes": 0},  # some clients' plain producers
        {"base_timestamp": -1, "max_timestamp": -1},
        {"max_timestamp": -1},  # old clients omit it
        {"producer_epoch": 32767, "base_sequence": 2**31 - 1},
        {"base_offset": 99, "partition_leader_epoch": 5},
        {"attributes": 4},
    ],
)
def test_leader_accepts_variations_of_real_clients(fields: dict[str, int]) -> None:
    """Header fields in which real clients differ are accepted with all values that occur."""
    batch = golden_with(**fields)
    assert check_batch(batch) == parse_header(batch)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0}, ErrorCode.INVALID_RECORD),
        ({"record_count": -2}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 2}, ErrorCode.INVALID_RECORD),
        ({"record_count": 3, "last_offset_delta": 2}, ErrorCode.INVALID_RECORD),  # 3 records do not fit into 20 bytes
        ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 7}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),  # control
        ({"attributes": 0x30}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x40}, ErrorCode.INVALID_RECORD),  # delete horizon
        ({"attributes": 0x80}, ErrorCode.INVALID_RECORD),
        ({"attributes": -0x8000}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x08}, ErrorCode.INVALID_TIMESTAMP),  # only brokers set the log append time
        ({"base_timestamp": -2}, ErrorCode.INVALID_TIMESTAMP),
        ({"max_timestamp": -2}, ErrorCode.INVALID_TIMESTAMP),
        ({"max_timestamp": 1_699_999_999_999}, ErrorCode.INVALID_TIMESTAMP),
        ({"producer_epoch": -1}, ErrorCode.INVALID_RECORD),
        ({"base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": -1}, ErrorCode.INVALID_RECORD),  # in a transaction
        ({"producer_id": -2, "attributes": 0}, ErrorCode.INVALID_RECORD),
    ],
)
def test_leader_refuses_contradictory_headers(fields: dict[str, int], code: ErrorCode) -> None:
    """A batch with a valid CRC but contradictory fields is refused with Kafka's error code."""
    with pytest.raises(KafkaError) as error:
        check_batch(golden_with(**fields))
    assert error.value.code is code
    assert error.value.message


@given(data=st.binary(max_size=130), at=st.integers(0, 20), byte=st.integers(0, 255))
@settings(max_examples=300)
def test_any_bytes_as_a_batch(data: bytes, at: int, byte: int) -> None:
    """Random bytes, and batches with a random byte that the CRC does not cover, raise only typed errors."""
    changed_byte = GOLDEN[:at] + bytes((byte,)) + GOLDEN[at + 1 :]
    for buffer in (data, GOLDEN[:16] + data, changed_byte, changed_byte + data):
        try:
            assert check_batch(buffer).size == len(buffer)
        except KafkaError:
            pass
        last = None
        try:
            for position, last in iter_headers(buffer, incomplete_last=True):
                assert position + last.size <= len(buffer)
        except ProtocolError as error:
            with pytest.raises(ProtocolError, match=re.escape(str(error))):
                last_header(buffer)
        else:
            assert last_header(buffer) == last


def old_message(magic: int) -> bytes:
    """Return a message of format 0 or 1: offset, size, CRC, magic, attributes, (timestamp), key, value."""
    body = bytes(4) + bytes((magic, 0)) + bytes(8 * magic) + b"\xff\xff\xff\xff" + b"\x00\x00\x00\x05value"
    return bytes(8) + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (GOLDEN + GOLDEN, ErrorCode.INVALID_RECORD),
        (GOLDEN + b"\x00", ErrorCode.INVALID_RECORD),
        (GOLDEN[:-1], ErrorCode.CORRUPT_MESSAGE),
        (GOLDEN[:10], ErrorCode.CORRUPT_MESSAGE),
        (GOLDEN[:8] + bytes(4) + GOLDEN[12:], ErrorCode.CORRUPT_MESSAGE),
        (old_message(0), ErrorCode.INVALID_RECORD),
        (old_message(1), ErrorCode.INVALID_RECORD),
        (old_message(0) * 4, ErrorCode.INVALID_RECORD),
        (GOLDEN[:16] + b"\x03" + GOLDEN[17:], ErrorCode.INVALID_RECORD),
        (GOLDEN[:16] + b"\xff" + GOLDEN[17:], ErrorCode.INVALID_RECORD),
    ],
)
def test_leader_requires_exactly_one_batch(records: bytes, code: ErrorCode) -> None:
    """No batch, several batches, a partial batch and an old-format batch are refused with different error codes."""
    with pytest.raises(KafkaError) as error:
        check_batch(records)
    assert error.value.code is code


def test_only_coordinators_may_write_markers() -> None:
    """Control batches of clients are refused even if they are valid, because they could end a transaction."""
    marker = build_end_marker(EndMarker(committed=True, coordinator_epoch=4), 7, 3, 1_700_000_000_000)
    with pytest.raises(KafkaError, match="control") as error:
        check_batch(marker)
    assert error.value.code is ErrorCode.INVALID_RECORD


def test_offset_and_epoch_are_set_without_a_new_crc() -> None:
    """The leader changes only these two fields, in place."""
    log = bytearray(b"before" + GOLDEN + b"after")
    stamp(log, 1234, 9, len(b"before"))
    assert log == b"before" + golden_with(base_offset=1234, partition_leader_epoch=9) + b"after"
    assert verify_crc(log, parse_header(log, 6), 6)


def test_log_append_time_applies_to_every_record() -> None:
    """With LogAppendTime, consumers see the broker's time instead of the producer's (KIP-32)."""
    batch = bytearray(GOLDEN)
    stamp_log_append_time(memoryview(batch), 1_800_000_000_000)
    assert batch == golden_with(attributes=0x18, max_timestamp=1_800_000_000_000)
    assert [record.timestamp_ms for record in iter_records(batch)] == [1_800_000_000_000] * 2


def test_missing_max_timestamp_can_be_set() -> None:
    """After the max timestamp is set, the batch is still valid."""
    batch = bytearray(golden_with(max_timestamp=-1))
    stamp_max_timestamp(batch, 1_700_000_000_075)
    assert batch == GOLDEN


def test_headers_are_compared_by_their_fields() -> None:
    fields: dict[str, Any] = parse_header(GOLDEN)._asdict()
    assert BatchHeader(**fields) == parse_header(GOLDEN)
