"""The compiled kernels return the same results as the Python code, and leave malformed and unusual input to it."""

from __future__ import annotations

import gc
import random
import sys
import tracemalloc
from contextlib import suppress
from struct import error as StructError
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kreplica.errors import KafkaError, ProtocolError
from kreplica.storage import LogConfig, Origin
from kreplica.storage.log.results import AppendResult
from kreplica.storage.segments.batch_validation import check_as_follower, check_as_leader
from kreplica.wire import kernels
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch, seal
from kreplica.wire.batches import HEADER_SIZE, BatchHeader, iter_checked, parse_header, stamp, verify_crc
from kreplica.wire.producer_batches import build_producer_batch
from kreplica.wire.record_columns import RECORD_ROWS, RowShape, open_rows, read_rows
from kreplica.wire.record_validation import ANY_TIMESTAMP, TimestampRange, check_records
from kreplica.wire.records import Headers, Record
from tests.support.kernels import both, needs_kernels

pytestmark = needs_kernels

NOW_MS = 1_700_000_000_000
SIZE_MAX = 1 << 20
CONFIG = LogConfig()
SIZES = (0, 1, 7, 8, 9, 100, 255, 256, 700, 768, 769, 1100, 3000, 3072, 3073, 3840, 10_000, 100_000)


def batch(*values: bytes, **options: Any) -> bytearray:
    return bytearray(build_batch([Record(NEXT_OFFSET, NOW_MS, None, value) for value in values], **options))


def place(batches: list[Any], size_max: int = SIZE_MAX, total_max: int = SIZE_MAX) -> Any:
    assert kernels.place_batches is not None
    return kernels.place_batches(BatchHeader, AppendResult, batches, 40, 7, size_max, total_max)


# --- CRC -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_crc_of_every_size(size: int) -> None:
    """The CRC is correct for every size, and detects each changed byte."""
    chance = random.Random(size)
    data = bytes(batch(chance.randbytes(size)))
    assert [header for _, header, _ in iter_checked(data)] == [parse_header(data)]
    assert kernels.scan_batches is not None
    assert len(kernels.scan_batches(BatchHeader, b"x" * 3 + data, 3, SIZE_MAX)) == 1
    for position in {21, len(data) - 1, *(chance.randrange(21, len(data)) for _ in range(20))}:
        damaged = bytearray(data)
        damaged[position] ^= 1 << chance.randrange(8)
        assert not verify_crc(damaged, parse_header(data))
        assert kernels.scan_batches(BatchHeader, damaged, 0, SIZE_MAX) == []


# --- produced batches ------------------------------------------------------------------------------------------------


def test_run_of_batches_is_stamped_in_place() -> None:
    """The kernel returns the same headers and results as the Python code."""
    run = [batch(b"a"), memoryview(batch(b"b", b"c")), batch(b"d")]
    headers, results, size = place(run)
    assert [header.base_offset for header in headers] == [40, 41, 43]
    assert headers == [parse_header(each) for each in run]
    assert {header.partition_leader_epoch for header in headers} == {7}
    assert all(type(header) is BatchHeader for header in headers)
    assert set(headers) == {parse_header(each) for each in run}
    sizes = [len(each) for each in run]
    assert results == [
        AppendResult(40, 40, -1, False, sizes[0]),
        AppendResult(41, 42, -1, False, sizes[1]),
        AppendResult(43, 43, -1, False, sizes[2]),
    ]
    assert all(type(result) is AppendResult and result.duplicate is False for result in results)
    assert size == sum(sizes)


def test_run_ends_before_an_unsuitable_batch() -> None:
    """A run ends before a batch that exceeds a limit, is not in a bytearray, or needs checks; it is not changed."""
    plain, size = batch(b"a"), len(batch(b"a"))
    of_producer = {"producer_id": 5, "producer_epoch": 0}
    first, second = batch(b"a", base_sequence=0, **of_producer), batch(b"a", base_sequence=1, **of_producer)
    for others, limits in (
        ([batch(b"a")], {"total_max": 2 * size - 1}),
        ([bytes(plain)], {}),
        ([memoryview(bytes(plain))], {}),
        ([memoryview(bytearray(2 * size))[::2]], {}),
        ([bytearray(plain[:-1])], {}),
        ([bytearray()], {}),
        ([None], {}),
        ([batch(b"a", codec=1)], {}),
        ([batch(b"bb")], {"size_max": size}),
        ([first], {}),
    ):
        before = [None if each is None else bytes(each) for each in others]
        headers, _, total = place([bytearray(plain), *others], **limits)
        assert (len(headers), total) == (1, size)
        assert before == [None if each is None else bytes(each) for each in others]
    assert len(place([first, second])[0]) == 2
    assert len(place([first, first])[0]) == 1
    assert place([]) == ([], [], 0)


numbers = st.integers(-3, 3) | st.sampled_from([-(2**31), 2**31 - 1, 127, 128, -129])
changes = st.fixed_dictionaries(
    {},
    optional={
        "magic": st.integers(0, 3),
        "attributes": st.sampled_from([0, 1, 4, 5, 7, 8, 16, 32, 48, 64, 128, -(2**15)]),
        "last_offset_delta": numbers,
        "base_timestamp": numbers | st.just(NOW_MS),
        "max_timestamp": numbers | st.sampled_from([NOW_MS, 2**63 - 1, -(2**63)]),
        "producer_id": numbers | st.just(2**63 - 1),
        "producer_epoch": st.integers(-2, 2),
        "base_sequence": numbers,
        "record_count": numbers,
    },
)


@given(
    changes,
    st.lists(st.binary(max_size=20), min_size=1, max_size=3),
    st.none() | st.integers(0, 60),
    st.integers(0, 255),
)
@settings(max_examples=400)
def test_batches_with_any_header(fields: dict[str, int], values: list[bytes], position: int | None, byte: int) -> None:
    """The kernel accepts exactly those batches that the Python code appends without reading their records."""
    whole = batch(*values)
    header = parse_header(whole)._replace(**fields)
    made = bytearray(seal(header, bytes(whole[HEADER_SIZE:])))
    made[16] = fields.get("magic", 2)
    if position is not None:
        made[position] = byte
    placed = place([bytearray(made)])[0]
    try:
        checked = check_as_leader(bytearray(made), CONFIG, Origin.CLIENT, NOW_MS)[1]
    except KafkaError:
        assert placed == []
        return
    sent = parse_header(made)
    needs_records = sent.codec or sent.max_timestamp == -1
    assert placed == ([] if needs_records else [checked._replace(base_offset=40, partition_leader_epoch=7)])


# --- fetched batches -------------------------------------------------------------------------------------------------


@given(
    st.lists(st.binary(max_size=30), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2),
    st.integers(0, 400),
    st.integers(0, 2),
)
@settings(max_examples=300)
def test_fetched_batches(values: list[bytes], bytes_changed: list[tuple[int, int]], cut: int, epoch: int) -> None:
    """Followers and clients get the same batches and errors from both implementations."""
    data = bytearray()
    for number, value in enumerate(values):
        made = batch(value)
        stamp(made, number, 1)
        data += made
    for position, byte in bytes_changed:
        data[position % len(data)] = byte
    data = data[: max(len(data) - cut, 0)]
    for follow in (
        lambda: check_as_follower(memoryview(data), 0, epoch),
        lambda: check_as_follower(memoryview(data), 0, gaps_expected=False),
        lambda: list(iter_checked(data)),
    ):
        with suppress(KafkaError, ProtocolError):
            both(follow)


# --- records ---------------------------------------------------------------------------------------------------------

class WideRow(NamedTuple):
    """A row with fields that are equal for all records, and fields in another order than those of ``Record``."""

    topic: str
    timestamp: int
    offset: int
    number: int
    value: bytes | None
    headers: Headers
    key: bytes | None


WIDE_ROWS = RowShape(WideRow, ("topic", None, None, 5, None, None, None), bytes((2, 1, 6, 4, 5)))
spans = st.none() | st.binary(max_size=70)
records = st.lists(
    st.builds(
        Record,
        st.just(NEXT_OFFSET),
        st.integers(0, 2**62) | st.integers(NOW_MS, NOW_MS + 1),
        spans,
        spans,
        st.lists(st.tuples(st.text(max_size=3), spans), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


@given(records, st.integers(-3, 3), st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=3))
@settings(max_examples=300)
def test_reading_and_checking_records(sent: list[Record], more: int, bytes_changed: list[tuple[int, int]]) -> None:
    """Reading records as rows, and checking all records, give the same results or errors in both implementations."""
    made = bytearray(build_batch(sent))
    for position, byte in bytes_changed:
        at = HEADER_SIZE + position % (len(made) - HEADER_SIZE)
        made[at] = byte
    header = parse_header(made)._replace(record_count=max(len(sent) + more, 0))
    section = bytes(made[HEADER_SIZE:])
    for call in (
        lambda: read_rows(section, header, WIDE_ROWS),
        lambda: open_rows(made, header, SIZE_MAX, RECORD_ROWS),
        lambda: check_records(section, header, ANY_TIMESTAMP),
        lambda: check_records(section, header, TimestampRange(NOW_MS, 2**70)),
    ):
        with suppress(ProtocolError):
            both(call)


def test_rows_are_independent() -> None:
    """A row keeps its key, timestamp and headers when the next row has others or none."""
    headers = (("name", b"v"),)
    sent = [
        Record(0, NOW_MS, b"k", b"v", headers),
        Record(1, NOW_MS, None, None),
        Record(2, NOW_MS + 1, None, b"v"),
        Record(3, NOW_MS, b"", b"v", headers),
        Record(4, NOW_MS, b"k", b""),
    ]
    section, header = build_batch(sent)[HEADER_SIZE:], parse_header(build_batch(sent))
    rows = read_rows(section, header, WIDE_ROWS)
    assert rows == [WideRow("topic", each[1], each[0], 5, each[3], each[4], each[2]) for each in sent]
    assert all(type(row) is WideRow for row in rows)
    assert len(set(rows)) == len(rows)


def test_kernels_handle_ordinary_records() -> None:
    """Kernels that left everything to the Python code would pass all comparisons, but not this test."""
    sent = [Record(number, NOW_MS, b"k", b"v", (("name", None),)) for number in range(200)]
    section, header = build_batch(sent)[HEADER_SIZE:], parse_header(build_batch(sent))
    assert kernels.read_rows is not None
    assert kernels.check_records is not None
    assert kernels.encode_records is not None
    assert kernels.read_rows(*RECORD_ROWS, section, 0, NOW_MS, 199, 200, 0, 0) == sent
    assert kernels.check_records(section, NOW_MS, 199, 200, NOW_MS, NOW_MS) == (NOW_MS, [], [])
    assert kernels.read_batches is not None
    two = build_batch(sent) + build_batch([each._replace(offset=NEXT_OFFSET) for each in sent], base_offset=200)
    rows, size, position, next_offset = kernels.read_batches(*RECORD_ROWS, two, 0, 0, -1, 5, 200, SIZE_MAX)
    assert [row.offset for row in rows] == list(range(5, 400))
    assert (size, position, next_offset) == (2 * len(section), len(two), 400)
    encoded = kernels.encode_records([NOW_MS] * 200, [b"k"] * 200, [b"v"] * 200, [()] * 200)
    plain = build_batch([record._replace(headers=()) for record in sent])
    assert encoded[HEADER_SIZE:] == plain[HEADER_SIZE:]
    assert header.record_count == 200


@pytest.mark.parametrize("length", [b"\x01", b"\x81\x00"])
def test_null_key_of_any_encoding(length: bytes) -> None:
    """The length of a missing key may be a varint that is longer than necessary."""
    body = b"\x00\x00\x00" + length + b"\x00\x00"
    section = bytes((2 * len(body),)) + body
    header = parse_header(build_batch([Record(0, NOW_MS, None, b"")]))
    assert both(check_records, section, header).without_key == [0]


@pytest.mark.parametrize(
    "columns",
    [
        ([2**64], [None], [b""], [()]),
        ([-(2**63), 2**62], [None] * 2, [b""] * 2, [()] * 2),
        ([1], [bytearray(b"k")], [b""], [()]),
        ([1], [None], [b""], [(("a", b"b"),)]),
        ([True], [None], [b""], [()]),
    ],
    ids=["large timestamp", "large difference", "bytearray", "headers", "bool"],
)
def test_unusual_columns(columns: tuple[list[Any], ...]) -> None:
    """The kernel leaves unusual columns to the Python code, which encodes them or raises its own error."""
    assert kernels.encode_records is not None
    assert kernels.encode_records(*columns) is None
    if columns[0] == [2**64]:
        with pytest.raises(StructError):
            build_producer_batch(*columns, 0)
    else:
        assert parse_header(build_producer_batch(*columns, 0)).record_count == len(columns[0])


def test_invalid_arguments() -> None:
    """Invalid arguments raise errors and do not crash the process."""
    header = tuple(parse_header(batch(b"a")))
    for call in (
        lambda: place(5),  # type: ignore[arg-type]
        lambda: kernels.place_batches(int, AppendResult, [], 0, 0, 0, 0),  # type: ignore[misc]
        lambda: kernels.place_batches(),  # type: ignore[misc]
        lambda: kernels.match_requests("text", b"", 0, 0, 0, 0, 12, False, 0, 9),  # type: ignore[misc]
        lambda: kernels.match_requests(b"", b"", 0, 0, 0, 0, 2**64, False, 0, 9),  # type: ignore[misc]
        lambda: kernels.fill_responses(b"1234567", (0, 4), [1], [(0,) * 5], 0, 0),  # type: ignore[misc]
        lambda: kernels.fill_responses(b"12345678", (0, -1), [1], [(0,) * 5], 0, 0),  # type: ignore[misc]
        lambda: kernels.fill_responses(bytes(99), (0,) * 6, [1], [(0,) * 5], 0, 0),  # type: ignore[misc]
        lambda: kernels.fill_responses(bytes(8), (0, 4), [1, 2], [(0,) * 5], 0, 0),  # type: ignore[misc]
        lambda: kernels.fill_responses(bytes(8), (0, 4), [1], [5], 0, 0),  # type: ignore[misc]
        lambda: kernels.fill_responses(bytes(8), (0, 4), ["1"], [(0,) * 5], 0, 0),  # type: ignore[misc]
        lambda: kernels.scan_batches(BatchHeader, "text", 0, 5),  # type: ignore[misc]
        lambda: kernels.scan_batches(BatchHeader, b"", 2**64, 5),  # type: ignore[misc]
        lambda: kernels.index_batches([5], 0, 0, 0, 0, 0),  # type: ignore[misc]
        lambda: kernels.index_batches([("a",) * 13], 0, 0, 0, 0, 0),  # type: ignore[misc]
        lambda: kernels.index_batches([header[:5]], 0, 0, 0, 0, 0),  # type: ignore[misc]
        lambda: kernels.read_rows(Record, (None,) * 4, bytes(range(5)), b"", 0, 0, 0, 0, 0, 0),  # type: ignore[misc]
        lambda: kernels.read_rows(Record, (None,) * 5, bytes(5), b"", 0, 0, 0, 0, 0, 0),  # type: ignore[misc]
        lambda: kernels.read_rows(Record, [None] * 5, bytes(range(5)), b"", 0, 0, 0, 0, 0, 0),  # type: ignore[misc]
        lambda: kernels.read_rows(tuple, *RECORD_ROWS[1:], b"", 0, 0, 0, 0, 0, 0),  # type: ignore[misc]
        lambda: kernels.read_batches(tuple, *RECORD_ROWS[1:], b"", 0, 0, 0, 0, 0, 0),  # type: ignore[misc]
        lambda: kernels.read_batches(*RECORD_ROWS, "text", 0, 0, 0, 0, 0, 0),  # type: ignore[misc]
        lambda: kernels.read_batches(*RECORD_ROWS, b"", 2**64, 0, 0, 0, 0, 0),  # type: ignore[misc]
        lambda: kernels.check_records("text", 0, 0, 1, 0, 0),  # type: ignore[misc]
        lambda: kernels.encode_records([1]),  # type: ignore[misc]
    ):
        with pytest.raises((TypeError, ValueError, OverflowError, IndexError, SystemError)):
            call()
    assert kernels.scan_batches is not None
    assert kernels.scan_batches(BatchHeader, batch(b"a"), -1, 5) == []
    assert kernels.scan_batches(BatchHeader, batch(b"a"), 2**62, 5) == []
    assert kernels.read_batches is not None
    for position in (-1, 2**62):
        assert kernels.read_batches(*RECORD_ROWS, batch(b"a"), position, 0, -1, 0, 5, 5)[0] == []
    assert kernels.index_batches is not None
    assert kernels.index_batches([(2**63 - 1, *header[1:6], 5, *header[7:])], 0, 0, 0, 0, 0) is None


def test_memory_does_not_grow() -> None:
    """References are released, even after malformed input."""
    chance = random.Random(5)
    sent = [Record(number, NOW_MS + number, b"k", b"v" * 40, (("n", b"v"),)) for number in range(20)]
    whole = build_batch(sent)
    header = parse_header(whole)

    def work() -> None:
        for _ in range(400):
            damaged = bytearray(whole)
            damaged[chance.randrange(len(whole))] = chance.randrange(256)
            place([bytearray(whole), damaged, whole])
            kernels.scan_batches(BatchHeader, whole + damaged, 0, SIZE_MAX)  # type: ignore[misc]
            kernels.index_batches([header] * 3, 0, 0, 10, 0, 0)  # type: ignore[misc]
            for data in (whole + whole, seal(header, damaged[HEADER_SIZE:])):
                kernels.read_batches(*RECORD_ROWS, data, 0, 0, -1, 5, 30, SIZE_MAX)  # type: ignore[misc]
            for data in (whole[HEADER_SIZE:], damaged[HEADER_SIZE:]):
                kernels.read_rows(*RECORD_ROWS, data, 0, NOW_MS, 19, 20, 0, 0)  # type: ignore[misc]
                kernels.check_records(data, NOW_MS, 19, 20, 0, 5)  # type: ignore[misc]
                kernels.decode_columns([(header, data)] * 2)  # type: ignore[misc]
            kernels.encode_records([1, 2], [None, b"k"], [b"v", None], [(), ()])  # type: ignore[misc]
            kernels.encode_records([1, 2], [None, "k"], [b"v", None], [(), ()])  # type: ignore[misc]

    work()
    gc.collect()
    tracemalloc.start()
    before, references = tracemalloc.get_traced_memory()[0], sys.getrefcount(None)
    work()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000
    assert abs(sys.getrefcount(None) - references) < 200
