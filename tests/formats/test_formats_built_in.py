"""Built-in formats without a registry: values, limits and automatic detection."""

from __future__ import annotations

import json
import math
import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

import cbor2
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kreplica.formats.catalogue import AUTO, Formats
from kreplica.formats.json_values import DECODED_BYTES_MAX, DEPTH_MAX, to_json
from kreplica.formats.schema_store import SchemaStore
from kreplica.groups.consumer_records import ConsumerKey, RecordKind, build_consumer_key, build_consumer_value
from kreplica.groups.records import (
    CommittedOffset,
    GroupRecord,
    MemberRecord,
    build_group_key,
    build_group_value,
    build_offset_key,
    build_offset_value,
)
from kreplica.interfaces.formats import FormatError, Place
from kreplica.transactions.records import encode_key, encode_value
from kreplica.transactions.states import Transaction, TransactionState

FORMATS = Formats(SchemaStore(lambda: 0.0, has_registry=False))
VALUE = Place("orders", False, b"k")


def part(data: bytes | None, chosen: str = AUTO, place: Place = VALUE) -> tuple[str, Any, str | None]:
    found = FORMATS.part(data, place, chosen, with_base64=False)
    json.dumps(found["value"], allow_nan=False, ensure_ascii=False).encode()
    return found["format"], found["value"], found["error"]


AUTOMATIC = [
    (None, "null", None),
    (b"", "text", ""),
    (b'{"a": [1, 2.5, null]}', "json", {"a": [1, 2.5, None]}),
    (b" 12 ", "text", " 12 "),
    (b'"caf\xc3\xa9"', "text", '"café"'),
    (b" [true]", "json", [True]),
    (b"[9007199254740993]", "json", [9007199254740993]),
    (b"[1e999]", "json", ["1e999"]),
    (b'["\\ud800"]', "json", ["\ufffd"]),
    (b"NaN", "text", "NaN"),
    (b"{truncated", "text", "{truncated"),
    (b"zwei Kaffee\t\r\n", "text", "zwei Kaffee\t\r\n"),
    (b"bell\x07", "hex", b"bell\x07".hex()),
    (b"\x00\x00\x00\x00\x05", "hex", "0000000005"),
    (b"\xff\xfe", "hex", "fffe"),
    (b"\x93\x01\x02\x03", "hex", "93010203"),
    (b"\xd9\xd9\xf7\x83\x01\x02\x03", "cbor", [1, 2, 3]),
]


@pytest.mark.parametrize(("data", "name", "value"), AUTOMATIC, ids=[str(row[0]) for row in AUTOMATIC])
def test_automatic_choice(data: bytes | None, name: str, value: Any) -> None:
    """JSON and printable text are recognized; other data is shown as hex digits."""
    assert part(data) == (name, value, None)


@pytest.mark.parametrize("name", ["json", "text", "msgpack", "cbor", "avro", "protobuf", "json-schema"])
def test_failed_decoding(name: str) -> None:
    """A key or value that is not in the chosen format is shown as hex digits with the reason."""
    found = part(b"\xc1\x00\xff", name)
    assert found[:2] == ("hex", "c100ff")
    assert found[2] is not None
    assert found[2].startswith(f"{name}: ")


def test_scalars() -> None:
    """Scalars are decoded as JSON if this format is chosen."""
    assert [part(data, "json")[1] for data in (b" 12 ", b"null", b'"a"')] == [12, None, "a"]


def test_unknown_format() -> None:
    with pytest.raises(FormatError, match="unknown format 'xml'; the formats are: group-record, "):
        FORMATS.named("xml")


PACKED = {
    "text": "é",
    "numbers": [0, -1, 2**63, 1.5],
    "none": None,
    "bytes": b"\x00\xff",
    7: True,
    "nested": {"list": [[]]},
}
UNPACKED = {
    "text": "é",
    "numbers": [0, -1, 2**63, 1.5],
    "none": None,
    "bytes": {"$base64": "AP8="},
    "7": True,
    "nested": {"list": [[]]},
}


@pytest.mark.parametrize(("name", "data"), [("msgpack", msgpack.packb(PACKED)), ("cbor", cbor2.dumps(PACKED))])
def test_binary_documents(name: str, data: bytes) -> None:
    """Documents encoded by the libraries are decoded; bytes keep their type, and keys become text."""
    assert part(data, name) == (name, UNPACKED, None)
    encoded = FORMATS.named(name).encode({"b": {"$base64": "AP8="}}, None, None)
    assert part(encoded, name)[1] == {"b": {"$base64": "AP8="}}


def test_not_a_number() -> None:
    """Values without a JSON form become text."""
    data = msgpack.packb([math.nan, math.inf, -math.inf, msgpack.Timestamp(1, 0), msgpack.ExtType(5, b"x")])
    extension = {"$extension": 5, "data": {"$base64": "eA=="}}
    assert part(data, "msgpack")[1] == ["NaN", "Infinity", "-Infinity", "1970-01-01T00:00:01+00:00", extension]


TAGGED = [
    ("c4820105", {"$tag": 4, "value": [1, 5]}),
    ("d81c81d81d00", {"$tag": 28, "value": [{"$tag": 29, "value": 0}]}),  # a list that contains itself
    ("d81e820102", {"$tag": 30, "value": [1, 2]}),
    ("d8236161", {"$tag": 35, "value": "a"}),  # a regular expression
    ("d90100826161d81900", {"$tag": 256, "value": ["a", {"$tag": 25, "value": 0}]}),
    ("d901028101", {"$tag": 258, "value": [1]}),
    ("d90104a0", {"$tag": 260, "value": {}}),
    ("d9ffff01", {"$tag": 65535, "value": 1}),
    ("c249010000000000000000", 2**64),
    ("c11a514b67b0", "2013-03-21T20:04:00+00:00"),
    ("d82550" + 16 * "11", "11111111-1111-1111-1111-111111111111"),
    ("d9d9f701", 1),
]


@pytest.mark.parametrize(("digits", "value"), TAGGED, ids=[digits[:6] for digits, _ in TAGGED])
def test_cbor_tags(digits: str, value: Any) -> None:
    """Times, big integers and UUIDs are converted; the content of every other tag is shown."""
    assert part(bytes.fromhex(digits), "cbor") == ("cbor", value, None)


def test_numbers_and_uuids_as_text() -> None:
    """Numbers without a JSON form, decimals and UUIDs are shown as text."""
    values = [Decimal("NaN"), Decimal("-Infinity"), Decimal("1.50"), UUID(int=7)]
    assert to_json(values) == ["NaN", "-Infinity", "1.50", "00000000-0000-0000-0000-000000000007"]


DANGEROUS = [
    ("json", b"[" * 100_000),
    ("json", b"[" * (DEPTH_MAX + 2) + b"]" * (DEPTH_MAX + 2)),
    ("json", b"[" + b"1," * 500_000 + b"1]"),
    ("json", b"9" * 10_000),
    ("msgpack", b"\x91" * 100_000),
    ("msgpack", b"\xdd\xff\xff\xff\xff"),
    ("msgpack", b"\xdd\x00\x0f\xff\x00" + b"\xc0" * 1_000_000),
    ("cbor", b"\x81" * 100_000),
    ("cbor", b"\x9a\xff\xff\xff\xff"),
    ("cbor", b"\x9f" + b"\xf6" * 1_000_000 + b"\xff"),
    ("cbor", b"\xd8\x1c\x81\xd8\x1d\x00"),  # a list that contains itself
    ("cbor", b"\xd8\x23\x78\x64" + b"(a*)*" * 20),  # a regular expression
    ("cbor", b"\xc2\x5a\x00\x0f\x00\x00" + b"\xff" * 0xF0000),  # an integer of eight million bits
    ("cbor", b"\xc4\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01"),  # a decimal with a large exponent
    ("cbor", b"\xc5\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01"),
]


@pytest.mark.parametrize(("name", "data"), DANGEROUS, ids=[f"{name} {data[:4]!r}" for name, data in DANGEROUS])
def test_dangerous_documents(name: str, data: bytes) -> None:
    """Dangerous documents are refused, or shown as valid JSON in bounded memory."""
    found = FORMATS.part(data, VALUE, name, with_base64=False)
    assert len(json.dumps(found, allow_nan=False)) < 4_000_000


def test_large_values() -> None:
    """Large values are not decoded; their first bytes are shown."""
    data = b'"' + b"x" * DECODED_BYTES_MAX + b'"'
    found = FORMATS.part(data, VALUE, AUTO, with_base64=True)
    assert (found["format"], found["truncated"], len(found["value"])) == ("hex", True, 32 * 1024)
    assert found["error"] == "longer than 1,048,576 bytes, so not decoded"
    assert len(found["base64"]) > DECODED_BYTES_MAX


# --- internal topics -------------------------------------------------------------------------------------------------

OFFSETS, STATES = "__consumer_offsets", "__transaction_state"


def record(topic: str, key: bytes, value: bytes | None) -> tuple[Any, Any]:
    shown = part(key, AUTO, Place(topic, True, key)), part(value, AUTO, Place(topic, False, key))
    assert [each[2] for each in shown] == [None, None]
    return shown[0][1], shown[1][1]


def test_committed_offset() -> None:
    key = build_offset_key("kitchen", "orders", 3)
    assert record(OFFSETS, key, build_offset_value(CommittedOffset(42, 5, "note", 1000))) == (
        {"type": "offset_commit", "group_id": "kitchen", "topic": "orders", "partition": 3},
        {
            "offset": 42,
            "leader_epoch": 5,
            "metadata": "note",
            "commit_timestamp_ms": 1000,
            "expire_timestamp_ms": -1,
        },
    )
    assert record(OFFSETS, key, None)[1] is None


def test_classic_group() -> None:
    member = MemberRecord("m", None, "c", "/127.0.0.1", 1, 2, b"\x00", b"")
    value = build_group_value(GroupRecord("consumer", 7, "range", "m", 5, [member]))
    key, shown = record(OFFSETS, build_group_key("kitchen"), value)
    assert key == {"type": "group_metadata", "group_id": "kitchen"}
    assert (shown["generation"], shown["members"][0]["subscription"]) == (7, {"$base64": "AA=="})


def test_consumer_group() -> None:
    key = build_consumer_key(ConsumerKey(RecordKind.TARGET_EPOCH, "kitchen"))
    value = build_consumer_value(RecordKind.TARGET_EPOCH, {"assignment_epoch": 4})
    assert record(OFFSETS, key, value) == (
        {"type": "consumer_group_target_epoch", "group_id": "kitchen"},
        {"assignment_epoch": 4},
    )


def test_transaction() -> None:
    transaction = Transaction("cashier", 5, 1, 60_000, TransactionState.EMPTY, frozenset(), 10, -1)
    key, value = record(STATES, encode_key("cashier"), encode_value(transaction))
    assert key == {"transactional_id": "cashier"}
    assert (value["state"], value["producer_id"], value["partitions"]) == ("empty", 5, {})


@pytest.mark.parametrize("topic", [OFFSETS, STATES])
@pytest.mark.parametrize("data", [b"", b"\x00", struct.pack(">h", 99), b"\x00\x01\xff\xff"])
def test_malformed_internal_records(topic: str, data: bytes) -> None:
    """Malformed internal records are shown as hex digits with the reason."""
    name, value, error = part(data, AUTO, Place(topic, True, data))
    assert (name, value) == ("hex", data.hex())
    assert error
    assert part(b"x", AUTO, Place(topic, False, data))[0] == "hex"


# --- mutations -------------------------------------------------------------------------------------------------------

SAMPLES = [
    *(("json", json.dumps(each).encode()) for each in ({"a": [1, 2, {"b": None}]}, "text", 1.5e300)),
    ("msgpack", msgpack.packb([PACKED, msgpack.Timestamp(1, 0), msgpack.ExtType(5, b"x")])),
    ("cbor", cbor2.dumps([PACKED, 2**70, -(2**70)])),
    (AUTO, cbor2.dumps(PACKED)),
    ("group-record", build_offset_key("kitchen", "orders", 3)),
    ("transaction-record", encode_key("cashier")),
]


@given(st.sampled_from(SAMPLES), st.data())
def test_mutated_data(sample: tuple[str, bytes], data: st.DataObject) -> None:
    """Every input has a result or a reason; formats raise no other exceptions."""
    name, content = sample
    mutated = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(mutated)))
        mutated[position : position + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    for is_key in (True, False):
        topic = OFFSETS if name == "group-record" else STATES
        found = FORMATS.part(bytes(mutated), Place(topic, is_key, bytes(mutated)), name, with_base64=False)
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
        assert "the format failed" not in (found["error"] or "")
