"""Pages with the newest records first, read from random logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.admin.messages.fetching import Round, TopicQuery
from kreplica.admin.messages.newest_first import NewestFirst
from kreplica.admin.messages.pages import PAGE_BYTES_MAX, Page, PageRequest, StartPosition
from kreplica.admin.messages.positions import NEWEST, Span
from kreplica.admin.messages.scanning import ScanLimits, Scanned, Selection
from kreplica.formats.catalogue import Formats
from kreplica.formats.messages import RecordView
from kreplica.formats.schema_store import SchemaStore
from kreplica.model import TopicPartition

VIEW = RecordView(Formats(SchemaStore(lambda: 0.0, has_registry=False)), "orders")
TOPIC = TopicQuery("orders", UUID(int=7), 0, Selection(VIEW))
Logs = dict[int, list[tuple[int, int, bool]]]
"""For each partition, a tuple per record: offset, timestamp, and True if the record matches."""


class FakeFetcher:
    """Returns a limited number of records from randomly chosen partitions; some partitions have no leader."""

    def __init__(self, logs: Logs, random: Random, clock: Clock, lost: int | None, sizes: Mapping[int, int]) -> None:
        self.logs = logs
        self._sizes = sizes
        self.lost = lost
        self._random = random
        self._clock = clock

    async def round(self, topic: TopicQuery, spans: Mapping[int, Span], limits: ScanLimits) -> Round:
        self._clock.advance(self._random.choice([0.001, 0.2]))
        result = Round()
        if self.lost in spans:
            result.problems[TopicPartition("orders", self.lost)] = "no leader"
        numbers = [number for number in spans if number != self.lost]
        for number in self._random.sample(numbers, self._random.randint(min(1, len(numbers)), len(numbers))):
            result.scanned[number] = self._scan(number, spans[number])
        return result

    def _scan(self, number: int, span: Span) -> Scanned:
        scanned = Scanned(span.next_offset)
        for offset, timestamp_ms, matches in self.logs[number]:
            if not span.next_offset <= offset < span.end_offset:
                continue
            if scanned.count == self._random.choice([3, 7, 50]):
                return scanned
            scanned.offsets.append(offset)
            scanned.next_offset = offset + 1
            scanned.oldest_ms = min(timestamp_ms, timestamp_ms if scanned.oldest_ms is None else scanned.oldest_ms)
            if matches:
                size = self._sizes.get(number, 100)
                row = {"partition": number, "offset": offset, "timestamp_ms": timestamp_ms, "size_bytes": size}
                scanned.found.append(row)
                scanned.found_bytes += size
        scanned.next_offset = span.end_offset  # the rest was compacted
        return scanned


def random_logs(random: Random, *, is_ordered: bool) -> Logs:
    logs: Logs = {}
    for number in range(random.randint(1, 6)):
        offset, timestamp_ms = random.randrange(5), random.randrange(500)
        rows = logs[number] = []
        for _ in range(random.choice([0, 5, 60, 200])):
            offset += random.choice([1, 1, 1, 9])
            timestamp_ms += random.choice([0, 1, 20])
            shown_ms = timestamp_ms if is_ordered else random.randrange(2000)
            rows.append((offset, shown_ms, random.random() < random.choice([0.05, 1])))
    return logs


NO_SIZES: Mapping[int, int] = {}


def pages(
    logs: Logs, random: Random, lost: int | None = None, sizes: Mapping[int, int] = NO_SIZES
) -> list[list[dict[str, Any]]]:
    """Read all pages; together they count each scanned record once.

    :param sizes: record size by partition; 100 bytes for other partitions.
    """
    clock = Clock()
    clock.advance(1000)
    fetcher: Any = FakeFetcher(logs, random, clock, lost, sizes)
    spans = {number: Span(0, rows[-1][0] + 1 if rows else 0) for number, rows in logs.items()}
    limit, scan_limit = random.choice([1, 10, 100]), random.choice([1, 50, 1000])
    wanted = PageRequest(TOPIC, None, StartPosition("latest"), None, limit, scan_limit, NEWEST)
    found = []
    scanned = 0
    while any(not span.is_read for number, span in spans.items() if number != lost):
        before = sum(span.size for span in spans.values())
        page = Page({number: replace(span) for number, span in spans.items() if not span.is_read})
        reader = NewestFirst(clock, fetcher, page, wanted)  # type: ignore[arg-type]
        reading = Deferred.fromCoroutine(reader.messages())
        rows: list[list[dict[str, Any]]] = []
        reading.addCallback(rows.append)
        while not rows:
            clock.advance(0.1)
        assert len(rows[0]) <= limit
        record_sizes = [row["size_bytes"] for each in reader._partitions.values() for row in each.found]
        assert sum(record_sizes) <= 3 * PAGE_BYTES_MAX + len(logs) * max(sizes.values(), default=0)
        found.append(rows[0])
        scanned += page.document(wanted, rows[0])["scanned"]
        spans.update(page.spans)
        assert sum(span.size for span in spans.values()) < before, "a page makes progress"
        assert len(found) < 5000
    assert scanned == sum(len(log) for number, log in logs.items() if number != lost)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_ordered_timestamps(seed: int) -> None:
    """Together the pages have every matching record, in order of time."""
    random = Random(seed)
    logs = random_logs(random, is_ordered=True)
    rows = [row for page in pages(logs, random) for row in page]
    times = [row["timestamp_ms"] for row in rows]
    assert times == sorted(times, reverse=True)
    expected = {(number, offset) for number, log in logs.items() for offset, _, matches in log if matches}
    assert sorted((row["partition"], row["offset"]) for row in rows) == sorted(expected)


@pytest.mark.parametrize("seed", range(30))
def test_large_records_in_one_partition(seed: int) -> None:
    """Large records that do not fit into a page are read later; records are still in order of time across pages."""
    random = Random(3000 + seed)
    logs = {
        0: [(offset, 20 * offset, True) for offset in range(60)],
        1: [(offset, 7 * offset, True) for offset in range(170)],
    }
    rows = [row for page in pages(logs, random, sizes={0: 1_200_000}) for row in page]
    times = [row["timestamp_ms"] for row in rows]
    assert times == sorted(times, reverse=True)
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows) == 230


@pytest.mark.parametrize("size", [100, 1_200_000])
@pytest.mark.parametrize("seed", range(60))
def test_any_timestamps(seed: int, size: int) -> None:
    """Each record is in one page, and each partition's records keep their order, whatever their timestamps."""
    random = Random(1000 + seed)
    logs = random_logs(random, is_ordered=False)
    rows = [row for page in pages(logs, random, sizes={0: size}) for row in page]
    for number, log in logs.items():
        offsets = [row["offset"] for row in rows if row["partition"] == number]
        assert offsets == [offset for offset, _, matches in reversed(log) if matches]


@pytest.mark.parametrize("seed", range(20))
def test_partition_without_leader(seed: int) -> None:
    """If a partition has no leader, the other partitions are read to their ends."""
    random = Random(2000 + seed)
    logs = {number: log for number, log in random_logs(random, is_ordered=True).items() if log}
    lost = min(logs, default=None)
    rows = [row for page in pages(logs, random, lost) for row in page]
    expected = {(number, offset) for number, log in logs.items() for offset, _, matches in log if matches}
    found = {(row["partition"], row["offset"]) for row in rows}
    assert found == {row for row in expected if row[0] != lost}
