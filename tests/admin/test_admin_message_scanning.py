"""Scans of fetched chunks for matching records, without those of aborted transactions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kafka.partitioner.default import murmur2 as peer_murmur2

from kreplica.admin.http.problems import Problem
from kreplica.admin.messages.positions import NEWEST, OLDEST, Span, decode_spans, encode_spans
from kreplica.admin.messages.reading import merge_by_time
from kreplica.admin.messages.scanning import Chunk, ScanLimits, Selection, scan
from kreplica.admin.messages.searching import SEARCHED_BYTES_MAX, search_for
from kreplica.formats.catalogue import Formats
from kreplica.formats.filters import compile_filter
from kreplica.formats.messages import RecordView
from kreplica.formats.schema_store import SchemaStore
from kreplica.wire.batch_building import build_batch
from kreplica.wire.batches import HEADER_SIZE
from kreplica.wire.compression import Codec
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.partitioning import partition_of_key
from kreplica.wire.records import Record

ALL = ScanLimits(matches=1000, records=1000, match_bytes=1 << 20)
TOPIC_ID = UUID(int=7)
VIEW = RecordView(Formats(SchemaStore(lambda: 0.0, has_registry=False)), "orders")
SELECTION = Selection(VIEW)


PART = {"size_bytes": 0, "schema": None, "error": None, "truncated": False}


def records(start: int, count: int, **more: Any) -> bytes:
    rows = [Record(start + number, 1_000 + start + number, b"k", b"v%d" % (start + number)) for number in range(count)]
    return build_batch(rows, base_offset=start, **more)


def in_transaction(start: int, count: int, producer: int) -> bytes:
    return records(start, count, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)


def marker(offset: int, producer: int, *, committed: bool) -> bytes:
    batch = bytearray(build_end_marker(EndMarker(committed, 0), producer, 0, 0))
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)


def offsets(
    data: bytes, limits: ScanLimits = ALL, aborted: Sequence[tuple[int, int]] = (), **span: int
) -> tuple[Any, ...]:
    chunk = Chunk(0, data, span.get("start", 0), span.get("end", 10_000), aborted)
    found = scan(chunk, SELECTION, limits)
    return [row["offset"] for row in found.found], found.next_offset, found.count


class TestScan:
    @pytest.mark.parametrize("codec", list(Codec))
    def test_batches_of_each_codec(self, codec: Codec) -> None:
        """In batches of every codec, exactly the records in the requested range are found."""
        data = records(0, 3, codec=codec) + records(3, 4, codec=codec)
        assert offsets(data) == ([0, 1, 2, 3, 4, 5, 6], 7, 7)
        assert offsets(data, start=2, end=5) == ([2, 3, 4], 5, 3)

    def test_bounds(self) -> None:
        """The numbers of found and scanned records are limited; the next chunk starts after the last scanned record."""
        data = records(0, 3) + records(3, 4)
        assert offsets(data, ScanLimits(matches=4, records=100, match_bytes=1000)) == ([0, 1, 2, 3], 4, 4)
        assert offsets(data, ScanLimits(matches=9, records=2, match_bytes=1000)) == ([0, 1], 2, 2)
        assert offsets(data, ScanLimits(matches=9, records=9, match_bytes=4)) == ([0, 1], 2, 2)
        assert offsets(data, ScanLimits(matches=9, records=9, match_bytes=0)) == ([0], 1, 1)

    def test_time_limit(self) -> None:
        """A long scan stops at its deadline."""
        data = records(0, 950)
        found, next_offset, count = offsets(data, ScanLimits(1000, 1000, 1 << 20, is_late=lambda: True))
        assert (len(found), next_offset, count) == (9, 9, 9)

    def test_truncated_last_batch(self) -> None:
        """A truncated last batch is left for the next fetch."""
        data = records(0, 3) + records(3, 4)
        assert offsets(data[:-1]) == ([0, 1, 2], 3, 3)
        assert offsets(data[: HEADER_SIZE - 1]) == ([], 0, 0)

    def test_batch_that_cannot_be_decompressed(self) -> None:
        """A batch that cannot be decompressed is skipped with a notice; later batches are shown."""
        bad = bytearray(records(3, 4, codec=Codec.GZIP))
        bad[HEADER_SIZE + 2] ^= 0xFF
        chunk = Chunk(0, records(0, 3) + bytes(bad) + records(7, 1), 0, 100)
        found = scan(chunk, SELECTION, ALL)
        assert ([row["offset"] for row in found.found], found.undecodable, found.next_offset) == ([0, 1, 2, 7], [3], 8)

    def test_aborted_transactions(self) -> None:
        """Records of aborted transactions and markers are hidden; concurrent records of other producers are shown."""
        data = (
            in_transaction(0, 2, producer=1)
            + in_transaction(2, 1, producer=2)
            + records(3, 1)
            + marker(4, 1, committed=False)
            + in_transaction(5, 2, producer=1)
            + marker(7, 2, committed=True)
            + marker(8, 1, committed=True)
            + in_transaction(9, 1, producer=1)
            + marker(10, 1, committed=False)
        )
        assert offsets(data, aborted=[(1, 9), (1, 0)]) == ([2, 3, 5, 6], 11, 4)
        assert offsets(data) == ([0, 1, 2, 3, 5, 6, 9], 11, 7)

    def test_json_encoding(self) -> None:
        """Printable UTF-8 is encoded as text, other bytes as hex, and a missing timestamp as null."""
        headers = (("a", b"\xff"), ("b", None), ("bad\udcff", b"x"))
        data = build_batch([Record(0, -1, None, b"\x00\xff", headers), Record(1, 5, "ké".encode(), None)])
        first, second = scan(Chunk(3, data, 0, 10), SELECTION, ALL).found
        assert first == {
            "partition": 3,
            "offset": 0,
            "timestamp_ms": None,
            "timestamp_type": "create_time",
            "key": {**PART, "format": "null", "value": None},
            "value": {**PART, "format": "hex", "value": "00ff", "size_bytes": 2},
            "headers": [
                {"key": "a", "value": "/w==", "encoding": "base64"},
                {"key": "b", "value": None, "encoding": None},
                {"key": "bad�", "value": "x", "encoding": "utf8"},
            ],
            "size_bytes": 2 + 2 + 1 + 4 + 1,
            "control": None,
        }
        assert (second["key"]["value"], second["value"]["format"], second["size_bytes"]) == ("ké", "null", 3)

    def test_filter(self) -> None:
        """Matching records are found; records for which the filter fails are counted, with the first reason."""
        rows = [Record(at, at, b"k", b'{"total": %d}' % at if at % 3 else b"{}") for at in range(7)]
        view = replace(VIEW, record_filter=compile_filter("value.total > 3"))
        found = scan(Chunk(0, build_batch(rows), 0, 10), Selection(view), ALL)
        assert ([row["offset"] for row in found.found], found.count, found.filter_errors) == ([4, 5], 7, 3)
        assert found.filter_error is not None
        assert found.filter_error.startswith("partition 0, offset 0: ")

    def test_control_records(self) -> None:
        """If requested, transaction markers are shown with their fields."""
        data = in_transaction(0, 1, producer=1) + marker(1, 1, committed=False) + marker(2, 3, committed=True)
        found = scan(Chunk(0, data, 0, 10), replace(SELECTION, with_control_records=True), ALL).found
        assert [row["control"] for row in found] == [
            None,
            {"type": "abort", "producer_id": 1, "producer_epoch": 0, "coordinator_epoch": 0},
            {"type": "commit", "producer_id": 3, "producer_epoch": 0, "coordinator_epoch": 0},
        ]


class TestSearch:
    RECORD = Record(0, 0, b"Key-1", "Zwei Kaffee, größer".encode(), (("Trace", b"abc\n123"),))

    @pytest.mark.parametrize(
        "text", ["key-", "KAFFEE", "GRÖSSER", "trace", "abc\n", "/^Key/", "/größ.r$/", "/c\\s\\d+$/"]
    )
    def test_matches(self, text: str) -> None:
        """Keys, values, and header names and values are searched; text ignores case, regular expressions do not."""
        search = search_for(text)
        assert search is not None
        assert search(self.RECORD)

    @pytest.mark.parametrize("text", ["key-2", "/^key/", "/Kaffee$/", "/abc./", "/Key.*Zwei/"])
    def test_no_match(self, text: str) -> None:
        """A match must be within one part of a record, and a dot does not match a line break."""
        search = search_for(text)
        assert search is not None
        assert not search(self.RECORD)

    def test_empty_search(self) -> None:
        """Empty text matches everything; one or two slashes are text, not an expression."""
        assert search_for("") is None
        assert search_for(None) is None
        search = search_for("//")
        assert search is not None
        assert search(Record(0, 0, None, b"https://"))

    @pytest.mark.parametrize("expression", ["(", "a{1001}", "(?=a)", "(a{100}){100}"])
    def test_invalid_expressions(self, expression: str) -> None:
        """An invalid expression is refused with the reason."""
        with pytest.raises(Problem) as refused:
            search_for(f"/{expression}/")
        assert (refused.value.status, refused.value.title) == (400, "INVALID_REGULAR_EXPRESSION")
        assert "(?s:" not in refused.value.detail or "too large" in refused.value.detail

    def test_nested_repetitions_are_fast(self) -> None:
        search = search_for("/(a*)*(a|a)*b$/")
        assert search is not None
        assert not search(Record(0, 0, None, b"a" * 20_000))

    def test_large_value_is_searched_partially(self) -> None:
        """Only the first 64 KiB of each part are searched."""
        search = search_for("end")
        assert search is not None
        assert search(Record(0, 0, None, b"." * (SEARCHED_BYTES_MAX - 3) + b"end"))
        assert not search(Record(0, 0, None, b"." * (SEARCHED_BYTES_MAX - 2) + b"end"))

    def test_random_expressions_match_like_re(self) -> None:
        random = Random(3)
        for _ in range(300):
            expression = "".join(random.choices(["a", "b", "é", ".", "[^a]", "(a|é)", "a*", "b?", "\\w", "$"], k=4))
            text = "".join(random.choice("abé\n ") for _ in range(8))
            search = search_for(f"/{expression}/")
            assert search is not None
            wanted = re.search(expression.replace("$", r"\Z").replace(r"\w", "[a-zA-Z0-9_]"), text) is not None
            assert search(Record(0, 0, None, text.encode())) is wanted, (expression, text)


class TestPositions:
    def test_round_trip(self) -> None:
        """The remaining offsets per partition survive encoding; the result is empty when all records were read."""
        spans = {0: Span(3, 9), 1: Span(9, 9), 7: Span(0, 2**62)}
        text = encode_spans(TOPIC_ID, OLDEST, spans)
        assert text is not None
        assert decode_spans(TOPIC_ID, OLDEST, text) == {0: Span(3, 9), 7: Span(0, 2**62)}
        assert encode_spans(TOPIC_ID, OLDEST, {1: Span(9, 9)}) is None

    def test_many_partitions(self) -> None:
        """Encoded positions of many partitions fit into the request line."""
        random = Random(1)
        spans = {number: Span(random.randrange(10**9), 10**9 + random.randrange(10**9)) for number in range(500)}
        text = encode_spans(TOPIC_ID, OLDEST, spans)
        assert text is not None
        assert decode_spans(TOPIC_ID, OLDEST, text) == spans
        assert len(text) < 12_000

    def test_invalid_positions(self) -> None:
        """Any other text, including positions of another topic or order, is refused."""
        good = encode_spans(UUID(int=8), OLDEST, {0: Span(0, 1)})
        backwards = encode_spans(TOPIC_ID, NEWEST, {0: Span(0, 1)})
        assert good is not None
        assert backwards is not None
        for text in ("", "x", "zzzz", "eJwrSS0uAQAEXQHB", good, backwards, good[:-4], "é"):
            with pytest.raises(Problem) as refused:
                decode_spans(TOPIC_ID, OLDEST, text)
            assert refused.value.status == 400


def test_partitions_are_merged_by_time() -> None:
    """Partitions are merged by timestamp, but each partition's records keep their order, whatever their timestamps."""
    found = {
        0: [{"partition": 0, "timestamp_ms": at} for at in (5, 1, 9)],
        1: [{"partition": 1, "timestamp_ms": at} for at in (None, 6)],
    }
    rows = [(row["partition"], row["timestamp_ms"]) for row in merge_by_time(found)]
    assert rows == [(1, None), (0, 5), (0, 1), (1, 6), (0, 9)]


def test_keys_are_partitioned_like_in_other_clients() -> None:
    """Keys are assigned to the same partitions as by another implementation, which computed the expected values."""
    random = Random(2)
    for _ in range(200):
        key = random.randbytes(random.randrange(12))
        assert partition_of_key(key, 7) == (peer_murmur2(key) & 0x7FFFFFFF) % 7
