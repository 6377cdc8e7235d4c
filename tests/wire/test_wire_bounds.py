"""Invalid sizes are refused before memory is allocated, with an error that names the field."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from struct import pack

import pytest

from kreplica.errors import LargeMessage, ProtocolError
from kreplica.wire.messages import FETCH, LEADER_AND_ISR, METADATA, OFFSET_COMMIT, PRODUCE
from kreplica.wire.primitives import COST_MAX, TAG_COST, uvarint
from kreplica.wire.schema import Schema

METADATA_TOPIC_COST = 7
"""Cost of a topic in a Metadata request: a record with one string."""


def parse_error(schema: Schema, version: int, data: bytes) -> ProtocolError:
    """Return the error that the compiled and the interpreted parser both raise for these bytes."""
    with pytest.raises(ProtocolError) as compiled:
        schema.parse(version, data)
    with pytest.raises(ProtocolError) as uncompiled:
        schema.parse_uncompiled(version, data)
    assert str(compiled.value) == str(uncompiled.value)
    return compiled.value


@contextmanager
def memory_peak_below(size_bytes: int) -> Iterator[None]:
    """Fail if the memory allocated within the context exceeds the size at any time."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        yield
        assert tracemalloc.get_traced_memory()[1] - before < size_bytes
    finally:
        tracemalloc.stop()


def produce(*topics: bytes, count: int | None = None) -> bytes:
    """Return a Produce request, version 7, with encoded topics."""
    return pack(">hhii", -1, 1, 1000, len(topics) if count is None else count) + b"".join(topics)


GOOD = b"\x00\x01t" + pack(">iii", 1, 0, 2) + b"ok"


def test_error_has_the_path_of_the_field() -> None:
    """The error contains the path of the field, with its array index, and the reason."""
    bad_name = pack(">h", -5) + bytes(20)
    error = parse_error(PRODUCE.request, 7, produce(GOOD, GOOD, GOOD, bad_name))
    assert error.path == "ProduceRequest.topic_data[3].name"
    assert error.reason == "length -5 is not allowed"


@pytest.mark.parametrize(
    ("topic", "path", "reason"),
    [
        (pack(">h", -1) + bytes(9), "name", "length -1 is not allowed"),
        (pack(">h", 2) + b"\xff\xfe" + bytes(9), "name", "is not UTF-8: invalid start byte at byte 0"),
        (pack(">h", 32767) + bytes(9), "name", "needs 32767 bytes, but 9 remain"),
        (b"\x00\x01t" + pack(">i", -1), "partition_data", "length -1 is not allowed"),
        (b"\x00\x01t" + pack(">i", -(1 << 31)), "partition_data", "length -2147483648 is not allowed"),
        (b"\x00\x01t" + pack(">iq", 2, 0), "partition_data", "2 elements do not fit in the 8 bytes that remain"),
        (b"\x00\x01t" + pack(">iii", 1, 0, -2), "partition_data[0].records", "length -2 is not allowed"),
        (b"\x00\x01t" + pack(">iii", 1, 0, 9) + bytes(8), "partition_data[0].records", "needs 9 bytes, but 8 remain"),
    ],
)
def test_wrong_lengths(topic: bytes, path: str, reason: str) -> None:
    """Negative, impossible and excessive lengths, and invalid UTF-8, have their own errors."""
    error = parse_error(PRODUCE.request, 7, produce(topic))
    assert error.path == f"ProduceRequest.topic_data[0].{path}"
    assert error.reason == reason


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        (b"\xff\xff\xff\xff\xff\x01", "topics", "varint is longer than five bytes"),
        (b"\xff\xff\xff\xff\x0f", "topics", "varint 4294967295 is larger than 2147483647"),
        (b"\xff\xff\xff\xff\x07", "topics", "2147483646 elements do not fit in the 0 bytes that remain"),
        (b"\x80", "topics", "needs 1 bytes, but 0 remain"),
        (b"\x02\x00\x00" + bytes(3), "topics[0].name", "length -1 is not allowed"),
        (b"\x00" + bytes(3) + b"\x02\x05\x00\x05\x00", "tags", "tags are not in ascending order: 5 follows 5"),
        (b"\x00" + bytes(3) + b"\x02\x05\x00\x04\x00", "tags", "tags are not in ascending order: 4 follows 5"),
        (b"\x00" + bytes(3) + b"\x01\x05\x02\x00", "tags", "tag 5 has 2 bytes, but 1 remain"),
        (b"\x00" + bytes(3) + b"\x02\x05\x00", "tags", "needs 1 bytes, but 0 remain"),
    ],
)
def test_wrong_varints_and_tags(data: bytes, path: str, reason: str) -> None:
    """Endless or excessive varints, and tag sections with a wrong order or size, have their own errors."""
    error = parse_error(METADATA.request, 9, data)
    assert error.path == f"MetadataRequest.{path}"
    assert error.reason == reason


def test_tag_size_must_match_its_field() -> None:
    """A known tag whose size differs from that of its field is refused."""
    body = FETCH.request.build(12, {"cluster_id": "abc"})
    good = b"\x01\x00\x04\x04abc"  # one tag: number 0, four bytes (length of the string + 1, string)
    assert body.endswith(good)
    for size in (b"\x03", b"\x05"):
        error = parse_error(FETCH.request, 12, body[: -len(good)] + good[:2] + size + good[3:] + b"\x00")
        assert error.path == "FetchRequest.cluster_id"


def test_count_beyond_the_frame_costs_nothing() -> None:
    """Two billion elements announced in a small frame are rejected before anything is allocated."""
    for count in (1 << 20, (1 << 31) - 1):
        with memory_peak_below(100_000):
            parse_error(PRODUCE.request, 7, produce(GOOD, count=count))


def test_frame_of_too_many_elements_is_refused_before_parsing() -> None:
    """A frame that really contains too many elements is refused at its first array."""
    topics = COST_MAX // METADATA_TOPIC_COST + 1
    data = pack(">i", topics) + bytes(2 * topics)
    METADATA.request.parser(0)
    with memory_peak_below(2 * len(data)), pytest.raises(ProtocolError, match="too many elements"):
        METADATA.request.parse(0, data)


def offsets(topics: int, partitions: int) -> bytes:
    """Return an OffsetCommit request, version 2, with the given numbers of topics and partitions."""
    topic = b"\x00\x00" + pack(">i", partitions) + pack(">iqh", 0, 0, -1) * partitions
    return pack(">h1sihqi", 1, b"g", 0, 0, 0, topics) + topic * topics


def leader_and_isr(isr: list[int]) -> bytes:
    """Return a LeaderAndIsr request, version 0, for one partition."""
    return LEADER_AND_ISR.request.build(0, {"ungrouped_partition_states": [{"isr": isr}]})


def test_nested_arrays_are_bounded() -> None:
    """Elements of nested arrays count towards one limit, so parsing a frame of 98 MB stops early."""
    data = offsets(topics=3_500, partitions=2_000)
    assert len(data) > 98_000_000
    started = time.process_time()
    with pytest.raises(ProtocolError) as caught:
        OFFSET_COMMIT.request.parse(2, data)
    assert time.process_time() - started < 20
    assert caught.value.path.startswith("OffsetCommitRequest.topics[")


@pytest.mark.parametrize(
    ("schema", "version", "data", "cost"),
    [
        (OFFSET_COMMIT.request, 2, offsets(topics=4, partitions=10_000), 40_000 * 9),
        (METADATA.request, 9, uvarint(50_001) + bytes((1, 0)) * 50_000 + bytes(4), 50_000 * METADATA_TOPIC_COST),
        (FETCH.response, 12, bytes(10) + bytes((2, 1)) + uvarint(10_001) + bytes(38) * 10_000 + bytes(2), 10_000 * 39),
        (LEADER_AND_ISR.request, 0, leader_and_isr([1 << 30] * 400_000), 400_000),
    ],
    ids=["nested records", "records of two bytes", "records full of defaults", "numbers"],
)
def test_memory_is_proportional_to_the_counted_cost(schema: Schema, version: int, data: bytes, cost: int) -> None:
    """For every kind of frame, memory is proportional to the counted cost, which is limited."""
    parse = schema.parser(version)
    with memory_peak_below(60 * cost):
        parse(data)


def test_lists_of_numbers_are_bounded() -> None:
    """A million replica IDs are valid in one frame, nine million are not."""
    schema = LEADER_AND_ISR.request
    value = schema.parse(0, leader_and_isr([1] * 1_000_000))
    assert len(value["ungrouped_partition_states"][0]["isr"]) == 1_000_000
    error = parse_error(schema, 0, leader_and_isr([1] * COST_MAX))
    assert error.path == "LeaderAndIsrRequest.ungrouped_partition_states[0].isr"


def test_tags_are_bounded() -> None:
    """A section with millions of tags is refused because of their number."""
    count = COST_MAX // TAG_COST + 1
    error = parse_error(METADATA.request, 9, b"\x00" + bytes(3) + uvarint(count) + bytes(2 * count))
    assert error.path == "MetadataRequest.tags"


def test_search_for_the_error_is_bounded() -> None:
    """For a huge frame that is malformed at its end, the error is less precise, so that the broker is not blocked."""
    topics = 500_000
    data = pack(">i", topics) + b"\x00\x00" * (topics - 1) + b"\xff\xff"
    METADATA.request.parser(0)
    started = time.process_time()
    with pytest.raises(ProtocolError, match="malformed here or later") as caught:
        METADATA.request.parse(0, data)
    assert time.process_time() - started < 5
    assert caught.value.path == "MetadataRequest.topics[500]"


def test_unsupported_versions_are_refused() -> None:
    """The error names the message and its versions."""
    for version in (-1, 13):
        with pytest.raises(ProtocolError, match=f"^ProduceRequest: version {version} is not within 0 to 12$"):
            PRODUCE.request.parse(version, b"")


def test_partitions_of_a_produce_request_are_bounded() -> None:
    """Up to 1,800 partitions are parsed in one step, and up to 18,000 in slices."""

    def request(partitions: int) -> bytes:
        rows = b"".join(pack(">ii", index, 0) for index in range(partitions))
        return produce(b"\x00\x01t" + pack(">i", partitions) + rows)

    def parse_in_slices(partitions: int) -> int:
        steps = PRODUCE.request.sliced_parser(7)(request(partitions), 0)
        try:
            while True:
                next(steps)
        except StopIteration as done:
            return len(done.value["topic_data"][0]["partition_data"])

    assert len(PRODUCE.request.parse(7, request(1_800))["topic_data"][0]["partition_data"]) == 1_800
    with pytest.raises(LargeMessage, match=r"^ProduceRequest: "):
        PRODUCE.request.parse(7, request(1_900))
    assert parse_in_slices(18_000) == 18_000
    with pytest.raises(ProtocolError, match="the message has too many elements"):
        parse_in_slices(19_000)
