"""The schema language of messages, and how the builder handles values."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest

from kreplica.errors import ProtocolError
from kreplica.model import ZERO_UUID
from kreplica.wire.grammar import version_range
from kreplica.wire.messages import APIS, FETCH, METADATA, PRODUCE
from kreplica.wire.messages.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, build_versioned, parse_versioned
from kreplica.wire.schema import Schema

EVERYTHING = Schema(
    "Everything",
    (0, 2),
    1,
    """
    flag bool =1
    small i8 =-3
    unsigned u16 =65535
    wide u32
    ratio f64
    id uuid 1+
    name str?1+ =unnamed
    note str?
    blob bytes
    numbers []i16
    names []str
    ids []uuid
    maybe []i32? =null
    inner {}?
      depth i32 =7
    late str 2+ @3 =later
    rows []
      left i32
      right i32 1+
    extra {} 1+ @1
      code i32 =-1
      tags []str
    """,
)

FULL: dict[str, Any] = {
    "flag": False, "small": -128, "unsigned": 40_000, "wide": 1 << 31, "ratio": 0.5, "id": UUID(int=9), "name": None,
    "note": "ü", "blob": b"\x00\xff", "numbers": [-1, 2], "names": ["", "b"], "ids": [UUID(int=1)],
    "maybe": [1] * 20, "inner": {"depth": -1}, "rows": [{"left": 1, "right": 2}], "late": "now",
    "extra": {"code": 3, "tags": ["t"]},
}  # fmt: skip


class Range:
    """A file range; the codec uses only its size."""

    def __init__(self, size: int) -> None:
        self.size = size


def test_every_type_and_every_modifier() -> None:
    """Messages with each type and modifier round-trip, compiled and interpreted."""
    data = EVERYTHING.build(2, FULL)
    assert data == EVERYTHING.build_uncompiled(2, FULL)
    assert EVERYTHING.parse(2, data) == EVERYTHING.parse_uncompiled(2, data) == FULL


def test_defaults() -> None:
    """A missing field gets its default, else null if that is valid, else the zero value of its type."""
    assert EVERYTHING.parse(2, EVERYTHING.build(2, {})) == {
        "flag": True, "small": -3, "unsigned": 65535, "wide": 0, "ratio": 0.0, "id": ZERO_UUID, "name": "unnamed",
        "note": None, "blob": b"", "numbers": [], "names": [], "ids": [], "maybe": None, "inner": None, "rows": [],
        "late": "later", "extra": {"code": -1, "tags": []},
    }  # fmt: skip
    assert "id" not in EVERYTHING.parse(0, EVERYTHING.build(0, {}))


def test_defaults_are_not_shared() -> None:
    """Changing a default list in one message does not change the next message."""
    data = EVERYTHING.build(2, {})
    for parse in (EVERYTHING.parse, EVERYTHING.parse_uncompiled):
        parse(2, data)["extra"]["tags"].append("mine")
        assert parse(2, data)["extra"] == {"code": -1, "tags": []}
    assert EVERYTHING.build(2, {}) == data


def test_tagged_fields_are_written_only_when_they_differ() -> None:
    """A tagged field with its default takes no bytes (KIP-482)."""
    plain = EVERYTHING.build(2, {})
    assert EVERYTHING.build(2, {"late": "later", "extra": {"code": -1, "tags": []}}) == plain
    assert plain.endswith(b"\x00")
    # two tags: 1, size 7: code, empty list, no tags of its own; 3, size 2: one letter
    expected = plain[:-1] + b"\x02" + b"\x01\x06\x00\x00\x00\x05\x01\x00" + b"\x03\x02\x02x"
    assert EVERYTHING.build(2, {"late": "x", "extra": {"code": 5}}) == expected


def test_incomplete_values_at_every_level() -> None:
    """A field may be missing in one element and present in the next."""
    value = {"rows": [{"left": 1, "right": 2}, {"right": 3}, {}], "inner": {}}
    parsed = EVERYTHING.parse(2, EVERYTHING.build(2, value))
    assert parsed["rows"] == [{"left": 1, "right": 2}, {"left": 0, "right": 3}, {"left": 0, "right": 0}]
    assert parsed["inner"] == {"depth": 7}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"small": 128}, "small"),
        ({"wide": None}, "wide"),
        ({"note": 5}, "note"),
        ({"note": "\ud800"}, "note"),
        ({"blob": None}, "blob"),
        ({"blob": "text"}, "blob"),
        ({"blob": Range(4)}, "blob"),
        ({"numbers": 3}, "numbers"),
        ({"numbers": [1, 1 << 15]}, "numbers[1]"),
        ({"names": ["a", None]}, "names[1]"),
        ({"ids": ["00"]}, "ids[0]"),
        ({"id": b"0" * 16}, "id"),
        ({"rows": [{}, {"left": "x"}]}, "rows[1].left"),
        ({"rows": [None]}, "rows[0]"),
        ({"inner": 4}, "inner"),
        ({"extra": {"tags": [b""]}}, "extra.tags[0]"),
    ],
)
def test_invalid_values_are_named(value: dict[str, Any], path: str) -> None:
    """A value of the wrong type or size is refused with an error that contains its path."""
    for given in (value, {**FULL, **value}):
        for build in (EVERYTHING.build, EVERYTHING.build_uncompiled, EVERYTHING.build_pieces):
            with pytest.raises(ProtocolError) as caught:
                build(2, given)
            assert caught.value.path == f"Everything.{path}"


def test_text_too_long_for_its_length_is_refused() -> None:
    """The length of a plain string has two bytes; compact strings may be longer."""
    long_name = {"name": "x" * 40_000}
    with pytest.raises(ProtocolError, match=r"^Everything\.name"):
        EVERYTHING.build(0, long_name)
    assert EVERYTHING.parse(1, EVERYTHING.build(1, long_name))["name"] == long_name["name"]


def test_null_in_a_version_without_null() -> None:
    """If a field is not nullable in a version, null is refused, and a default of null is encoded as empty."""
    assert METADATA.request.parse(0, METADATA.request.build(0, {})) == {"topics": []}
    assert METADATA.request.parse(1, METADATA.request.build(1, {})) == {"topics": None}
    with pytest.raises(ProtocolError, match=r"^MetadataRequest\.topics: null is not allowed"):
        METADATA.request.build(0, {"topics": None})


def test_unknown_names_are_refused_by_the_interpreted_code() -> None:
    """A misspelt field is an error; compiled code ignores it, as it does fields of other versions."""
    value = {"rows": [{"left": 1}, {"lift": 2}]}
    with pytest.raises(ValueError, match=r"^Everything\.rows\[1\] has no field 'lift'$"):
        EVERYTHING.build_uncompiled(2, value)
    assert EVERYTHING.build(2, value)


@pytest.mark.parametrize(
    "text", ["name", "name st", "name str 1..2", "name str\n   odd i8", "name str\n    deep i8", "name [] @"]
)
def test_invalid_schemas_are_errors(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        Schema("Mistaken", (0, 0), None, text).tree(0)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("3+", [3, 999], [2]), ("1-4", [1, 4], [0, 5]), ("", [0, 99], [])],
)
def test_version_ranges(text: str, inside: list[int], outside: list[int]) -> None:
    """A range is one version, a version and all later ones, or all versions between two."""
    assert all(version in version_range(text) for version in inside)
    assert not any(version in version_range(text) for version in outside)


def records_of(value: dict[str, Any]) -> Any:
    """Return the records of a Produce request with one partition."""
    return value["topic_data"][0]["partition_data"][0]["records"]


def produce(records: Any) -> dict[str, Any]:
    """Return a Produce request of one partition."""
    partition = {"index": 0, "records": records}
    return {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 1,
        "topic_data": [{"name": "t", "partition_data": [partition]}],
    }


@pytest.mark.parametrize("version", [7, 9])
def test_records_are_views_of_the_frame(version: int) -> None:
    """Record batches are not copied from the frame, while other bytes are."""
    data = PRODUCE.request.build(version, produce(b"batch"))
    records = records_of(PRODUCE.request.parse(version, data))
    assert isinstance(records, memoryview)
    assert records.obj is data
    assert type(EVERYTHING.parse(2, memoryview(EVERYTHING.build(2, FULL)))["blob"]) is bytes


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_may_be_any_bytes_type(version: int, kind: Any) -> None:
    """Bytes, bytearrays and memoryviews are accepted; small ones are joined, large ones remain separate buffers."""
    for size in (0, 1, 4095, 4096, 100_000):
        records = kind(bytes(size))
        data = PRODUCE.request.build(version, produce(records))
        assert records_of(PRODUCE.request.parse(version, data)) == bytes(size)
        pieces = PRODUCE.request.build_pieces(version, produce(records))
        assert b"".join(pieces) == data
        assert any(piece is records for piece in pieces) == (size >= 4096)


def fetch(*records: Any) -> dict[str, Any]:
    """Return a Fetch response with one partition for each argument."""
    partitions = [{"partition_index": index, "records": item} for index, item in enumerate(records)]
    return {"responses": [{"topic": "t", "partitions": partitions}]}


@pytest.mark.parametrize("version", [0, 4, 11, 12, 17])
def test_file_ranges_are_placed_between_the_bytes(version: int) -> None:
    """An object with a size takes the place of its bytes, and all lengths include it."""
    ranges = [Range(10), Range(70_000), Range(5)]
    records = [ranges[0], b"inline", ranges[1], None, ranges[2], Range(0)]
    pieces = FETCH.response.build_pieces(version, fetch(*records), prefix=b"head")
    assert [piece for piece in pieces if isinstance(piece, Range)] == ranges
    sent = b"".join(bytes(piece.size) if isinstance(piece, Range) else piece for piece in pieces)
    stand_ins = [bytes(item.size) if isinstance(item, Range) else item for item in records]
    assert sent == b"head" + FETCH.response.build(version, fetch(*stand_ins))


def test_file_ranges_are_refused_in_plain_bytes() -> None:
    """A file range is accepted only as records."""
    with pytest.raises(ProtocolError, match=r"records: Range is not bytes"):
        FETCH.response.build(11, fetch(Range(10)))


def test_error_next_to_a_file_range() -> None:
    """An error elsewhere in the message is not attributed to the range."""
    value = fetch(Range(10), b"")
    value["responses"][0]["partitions"][1]["error_code"] = None
    with pytest.raises(ProtocolError, match=r"^FetchResponse\.responses\[0\]\.partitions\[1\]\.error_code"):
        FETCH.response.build_pieces(11, value)


def test_message_without_records_is_one_buffer() -> None:
    """The buffer includes the prefix."""
    assert METADATA.request.build_pieces(1, {"topics": []}, prefix=b"head") == [b"head" + b"\x00" * 4]
    assert APIS[74].request.build_pieces(0, {}, prefix=b"head") == [b"head\x00"]


def test_parsers_of_a_version_accept_an_offset() -> None:
    """The function for a version, which the hot path calls, parses the same as ``parse``."""
    build, parse = PRODUCE.request.builder(7), PRODUCE.request.parser(7)
    data = build(produce(b"x"))
    assert parse(b"header" + data, 6) == parse(data) == PRODUCE.request.parse(7, data)
    assert PRODUCE.request.parser(7) is parse


def test_import_compiles_no_message() -> None:
    """Importing the messages creates no type tree and compiles no code, so a process starts quickly."""
    code = (
        "from kreplica.wire.messages import APIS\n"
        "from kreplica.wire import headers\n"
        "made = [s for a in APIS.values() for s in (a.request, a.response) if s._trees or s._parsers or s._builders]\n"
        "raise SystemExit(len(made))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_keys_and_versions_of_apis() -> None:
    """Each API is registered under its own key, and its versions have no gaps."""
    for key, api in APIS.items():
        assert key == api.key
        assert api.versions[0] == 0
        assert api.request.versions == api.response.versions == range(api.versions[1] + 1)
        assert (api.request.name, api.response.name) == (f"{api.name}Request", f"{api.name}Response")


def test_newer_versions_of_consumer_protocol_data() -> None:
    """Newer subscriptions and assignments are parsed as the newest known version."""
    value = {"topics": ["a"], "user_data": None, "owned_partitions": [], "generation_id": 4, "rack_id": "r"}
    data = build_versioned(SUBSCRIPTION, 3, value)
    assert parse_versioned(SUBSCRIPTION, data) == (3, value)
    assert parse_versioned(SUBSCRIPTION, b"\x00\x09" + data[2:] + b"new") == (9, value)
    assert parse_versioned(ASSIGNMENT, bytes(10)) == (0, {"assigned_partitions": [], "user_data": b""})
    for bad in (b"", b"\x00", b"\xff\xff" + data[2:]):
        with pytest.raises(ProtocolError, match=r"^ConsumerProtocolSubscription"):
            parse_versioned(SUBSCRIPTION, bad)


@pytest.mark.parametrize("version", [9, 10, 11, 12])
@pytest.mark.parametrize("flags", [(1, 0, 0), (0, 1, 1), (1, 1, 1)])
def test_extra_bytes_of_librdkafka_are_ignored(version: int, flags: tuple[int, ...]) -> None:
    """librdkafka writes three extra zero bytes, after the null that requests all topics or at the end."""
    flags = flags if version <= 10 else flags[1:]
    for data in (b"\x00" + bytes(3) + bytes(flags) + b"\x00", b"\x00" + bytes(flags) + b"\x00" + bytes(3)):
        assert METADATA.request.parse(version, data)["topics"] is None
