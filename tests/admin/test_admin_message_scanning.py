"""What of a fetched chunk is shown: the wanted records, and none of transactions that were aborted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kafka.partitioner.default import murmur2 as peer_murmur2

from kreplica.admin.http.problems import Problem
from kreplica.admin.messages.positions import Span, decode_spans, encode_spans
from kreplica.admin.messages.reading import merged
from kreplica.admin.messages.scanning import Bounds, Chunk, scan
from kreplica.admin.messages.searching import SEARCHED_BYTES_MAX, search_for
from kreplica.wire.batch_building import build_batch
from kreplica.wire.batches import HEADER_SIZE
from kreplica.wire.compression import Codec
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.partitioning import partition_of_key
from kreplica.wire.records import Record

ALL = Bounds(found=1000, count=1000, found_bytes=1 << 20)
TOPIC_ID = UUID(int=7)


def records(start: int, count: int, **more: Any) -> bytes:
    rows = [Record(start + number, 1_000 + start + number, b"k", b"v%d" % (start + number)) for number in range(count)]
    return build_batch(rows, base_offset=start, **more)


def in_transaction(start: int, count: int, producer: int) -> bytes:
    return records(start, count, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)


def marker(offset: int, producer: int, *, committed: bool) -> bytes:
    batch = bytearray(build_end_marker(EndMarker(committed, 0), producer, 0, 0))
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)


def offsets(data: bytes, bounds: Bounds = ALL, aborted: Sequence[tuple[int, int]] = (), **span: int) -> tuple[Any, ...]:
    chunk = Chunk(0, data, span.get("start", 0), span.get("end", 10_000), aborted)
    found = scan(chunk, None, bounds)
    return [row["offset"] for row in found.found], found.next_offset, found.count


class TestScan:
    @pytest.mark.parametrize("codec", list(Codec))
    def test_batches_of_each_codec(self, codec: Codec) -> None:
        """Records come out of every kind of batch, from the first that is wanted to the last."""
        data = records(0, 3, codec=codec) + records(3, 4, codec=codec)
        assert offsets(data) == ([0, 1, 2, 3, 4, 5, 6], 7, 7)
        assert offsets(data, start=2, end=5) == ([2, 3, 4], 5, 3)

    def test_bounds(self) -> None:
        """So many records are found or looked at, and no more; the next chunk begins behind the last that was."""
        data = records(0, 3) + records(3, 4)
        assert offsets(data, Bounds(found=4, count=100, found_bytes=1000)) == ([0, 1, 2, 3], 4, 4)
        assert offsets(data, Bounds(found=9, count=2, found_bytes=1000)) == ([0, 1], 2, 2)
        assert offsets(data, Bounds(found=9, count=9, found_bytes=4)) == ([0, 1], 2, 2)
        assert offsets(data, Bounds(found=9, count=9, found_bytes=0)) == ([0], 1, 1)

    def test_out_of_time(self) -> None:
        """Whoever looks through much is told when it is enough."""
        data = records(0, 950)
        found, next_offset, count = offsets(data, Bounds(1000, 1000, 1 << 20, is_late=lambda: True))
        assert (len(found), next_offset, count) == (9, 9, 9)

    def test_a_last_batch_that_is_cut_short(self) -> None:
        """It is for the next fetch."""
        data = records(0, 3) + records(3, 4)
        assert offsets(data[:-1]) == ([0, 1, 2], 3, 3)
        assert offsets(data[: HEADER_SIZE - 1]) == ([], 0, 0)

    def test_a_batch_that_cannot_be_opened(self) -> None:
        """It is passed over, and said to be; what follows is shown."""
        bad = bytearray(records(3, 4, codec=Codec.GZIP))
        bad[HEADER_SIZE + 2] ^= 0xFF
        chunk = Chunk(0, records(0, 3) + bytes(bad) + records(7, 1), 0, 100)
        found = scan(chunk, None, ALL)
        assert ([row["offset"] for row in found.found], found.passed_over, found.next_offset) == ([0, 1, 2, 7], [3], 8)

    def test_aborted_transactions(self) -> None:
        """What a transaction that was aborted wrote is not shown, what others wrote meanwhile is; nor are markers."""
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

    def test_as_json_has_it(self) -> None:
        """Bytes that are UTF-8 are text, others base64; a time that nobody said is none; sizes are of what was sent."""
        headers = (("a", b"\xff"), ("b", None), ("bad\udcff", b"x"))
        data = build_batch([Record(0, -1, None, b"\x00\xff", headers), Record(1, 5, "ké".encode(), None)])
        first, second = scan(Chunk(3, data, 0, 10), None, ALL).found
        assert first == {
            "partition": 3,
            "offset": 0,
            "timestamp_ms": None,
            "timestamp_type": "create_time",
            "key": None,
            "value": "AP8=",
            "key_encoding": None,
            "value_encoding": "base64",
            "headers": [
                {"key": "a", "value": "/w==", "encoding": "base64"},
                {"key": "b", "value": None, "encoding": None},
                {"key": "bad�", "value": "x", "encoding": "utf8"},
            ],
            "size_bytes": 2 + 2 + 1 + 4 + 1,
        }
        assert (second["key"], second["key_encoding"], second["value"], second["size_bytes"]) == ("ké", "utf8", None, 3)


class TestSearch:
    RECORD = Record(0, 0, b"Key-1", "Zwei Kaffee, größer".encode(), (("Trace", b"abc\n123"),))

    @pytest.mark.parametrize(
        "text", ["key-", "KAFFEE", "GRÖSSER", "trace", "abc\n", "/^Key/", "/größ.r$/", "/c\\s\\d+$/"]
    )
    def test_found(self, text: str) -> None:
        """In the key, the value, a header's name or value; text in any case, expressions as they say."""
        search = search_for(text)
        assert search is not None
        assert search(self.RECORD)

    @pytest.mark.parametrize("text", ["key-2", "/^key/", "/Kaffee$/", "/abc./", "/Key.*Zwei/"])
    def test_not_found(self, text: str) -> None:
        """Each part is looked at by itself, and a dot is no end of a line."""
        search = search_for(text)
        assert search is not None
        assert not search(self.RECORD)

    def test_nothing_to_look_for(self) -> None:
        """An empty text is in everything; a slash, or two, is text."""
        assert search_for("") is None
        assert search_for(None) is None
        search = search_for("//")
        assert search is not None
        assert search(Record(0, 0, None, b"https://"))

    @pytest.mark.parametrize("expression", ["(", "a{1001}", "(?=a)", "(a{100}){100}"])
    def test_what_is_no_expression(self, expression: str) -> None:
        """It is refused, with what is wrong, in its own words."""
        with pytest.raises(Problem) as refused:
            search_for(f"/{expression}/")
        assert (refused.value.status, refused.value.title) == (400, "INVALID_REGULAR_EXPRESSION")
        assert "(?s:" not in refused.value.detail or "too large" in refused.value.detail

    def test_an_expression_that_takes_others_for_ever(self) -> None:
        """Nested repetitions are no slower than others."""
        search = search_for("/(a*)*(a|a)*b$/")
        assert search is not None
        assert not search(Record(0, 0, None, b"a" * 20_000))

    def test_the_rest_of_a_large_value(self) -> None:
        """Only the first 64 KiB of each part are looked at."""
        search = search_for("end")
        assert search is not None
        assert search(Record(0, 0, None, b"." * (SEARCHED_BYTES_MAX - 3) + b"end"))
        assert not search(Record(0, 0, None, b"." * (SEARCHED_BYTES_MAX - 2) + b"end"))

    def test_as_python_has_it(self) -> None:
        """What random expressions find is what ``re`` finds with them."""
        random = Random(3)
        for _ in range(300):
            expression = "".join(random.choices(["a", "b", "é", ".", "[^a]", "(a|é)", "a*", "b?", "\\w", "$"], k=4))
            text = "".join(random.choice("abé\n ") for _ in range(8))
            search = search_for(f"/{expression}/")
            assert search is not None
            wanted = re.search(expression.replace("$", r"\Z").replace(r"\w", "[a-zA-Z0-9_]"), text) is not None
            assert search(Record(0, 0, None, text.encode())) is wanted, (expression, text)


class TestPositions:
    def test_there_and_back(self) -> None:
        """What is left of each partition; nothing where all is read."""
        spans = {0: Span(3, 9), 1: Span(9, 9), 7: Span(0, 2**62)}
        text = encode_spans(TOPIC_ID, spans)
        assert text is not None
        assert decode_spans(TOPIC_ID, text) == {0: Span(3, 9), 7: Span(0, 2**62)}
        assert encode_spans(TOPIC_ID, {1: Span(9, 9)}) is None

    def test_many_partitions(self) -> None:
        """Their text fits into the first line of a request."""
        random = Random(1)
        spans = {number: Span(random.randrange(10**9), 10**9 + random.randrange(10**9)) for number in range(500)}
        text = encode_spans(TOPIC_ID, spans)
        assert text is not None
        assert decode_spans(TOPIC_ID, text) == spans
        assert len(text) < 12_000

    def test_what_is_none(self) -> None:
        """Any other text, also that of another topic, is refused."""
        good = encode_spans(UUID(int=8), {0: Span(0, 1)})
        assert good is not None
        for text in ("", "x", "zzzz", "eJwrSS0uAQAEXQHB", good, good[:-4], "é"):
            with pytest.raises(Problem) as refused:
                decode_spans(TOPIC_ID, text)
            assert refused.value.status == 400


def test_partitions_are_shown_by_time() -> None:
    """Those of one partition keep their order, whatever times their producers gave."""
    found = {
        0: [{"partition": 0, "timestamp_ms": at} for at in (5, 1, 9)],
        1: [{"partition": 1, "timestamp_ms": at} for at in (None, 6)],
    }
    rows = [(row["partition"], row["timestamp_ms"]) for row in merged(found)]
    assert rows == [(1, None), (0, 5), (0, 1), (1, 6), (0, 9)]


def test_keys_go_where_others_send_them() -> None:
    """A key's partition is the one that another implementation computes."""
    random = Random(2)
    for _ in range(200):
        key = random.randbytes(random.randrange(12))
        assert partition_of_key(key, 7) == (peer_murmur2(key) & 0x7FFFFFFF) % 7
