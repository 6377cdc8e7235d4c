"""Readers of committed records, with client-side filtering, see exactly the committed records.

Producers write to small segments with and without transactions, and abort some; meanwhile the log is stopped, killed,
truncated and compacted. Every read starts at a random offset and requests a random number of bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from storage_world import SMALL, flush, idempotent, marker, open_log
from test_storage_compaction import compact

from kreplica.storage import Log, LogConfig, Origin
from kreplica.storage.log.appending import append_as_leader
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.batches import iter_headers
from kreplica.wire.records import Record, iter_records

PRODUCERS = range(4)
COMPACTED = replace(SMALL, cleanup_policy=frozenset({"compact"}), delete_retention_ms=0)


@dataclass
class Written:
    """A batch in the log.

    :ivar committed: True if the batch is committed; None while its transaction is open.
    """

    offset: int
    producer_id: int
    key: bytes | None
    value: bytes | None
    is_transactional: bool
    committed: bool | None
    ends: bool | None = None
    """True for a commit marker, False for an abort marker, None for other batches."""


class Story:
    """A log, and its expected contents."""

    def __init__(self, directory: Path, seed: int, config: LogConfig) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.config = config
        self.log = open_log(directory, config)
        self.written: list[Written] = []

    def step(self) -> None:
        choice = self.random.random()
        producer_id = self.random.choice(PRODUCERS)
        if choice < 0.65:
            self.write(producer_id)
        elif choice < 0.9:
            self.end(producer_id, committed=self.random.random() < 0.5)
        elif choice < 0.94:
            self.restart(clean=True)
        elif choice < 0.97:
            self.restart(clean=False)
        elif not self.config.compacted:
            self.cut()
        else:
            self.log.roll(1)

    def is_open(self, producer_id: int) -> bool:
        return self.log.producers.is_in_transaction(producer_id, 0)

    def write(self, producer_id: int) -> None:
        entry = self.log.producers.get(producer_id)
        sequence = (entry.last_sequence + 1) if entry is not None else 0
        transactional = self.is_open(producer_id) or self.random.random() < 0.7
        offset = self.log.log_end_offset
        key = b"key %d" % self.random.randrange(12)
        value = b"%d " % offset + b"x" * self.random.randrange(60)
        records = build_batch(
            [Record(NEXT_OFFSET, 1000 + offset, key, value)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
        )
        append_as_leader(self.log, bytearray(records), 0, now_ms=1)
        self.written.append(Written(offset, producer_id, key, value, transactional, None if transactional else True))

    def end(self, producer_id: int, *, committed: bool) -> None:
        offset = self.log.log_end_offset
        records = marker(producer_id, committed=committed)
        append_as_leader(self.log, records, 0, now_ms=1, origin=Origin.COORDINATOR)
        self.written.append(Written(offset, producer_id, None, None, True, True, ends=committed))
        self._decide()

    def _decide(self) -> None:
        """Apply the markers to the batches before them."""
        ends: dict[int, bool | None] = {}
        for one in reversed(self.written):
            if one.ends is not None:
                ends[one.producer_id] = one.ends
            elif one.is_transactional:
                one.committed = ends.get(one.producer_id)

    def restart(self, *, clean: bool) -> None:
        end_offset = self.log.log_end_offset
        if clean:
            self.log.close()
        else:
            flush(self.log)
            self.log.segments.release()
        point = end_offset if clean else self.random.randrange(end_offset + 1)
        self.log = open_log(self.directory, self.config, clean_shutdown=clean, recovery_point=point)
        assert self.log.log_end_offset == end_offset

    def cut(self) -> None:
        if self.written:
            offset = self.random.randrange(max(len(self.written) - 12, 0), len(self.written) + 1)
            assert self.log.truncate_to(offset) == offset
            del self.written[offset:]
            self._decide()

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def stable_offset(self) -> int:
        undecided = [one.offset for one in self.written if one.committed is None]
        return min(undecided, default=self.log.log_end_offset)

    def expected(self, start: int) -> list[tuple[int, bytes | None]]:
        """Return the records that a reader must see from an offset on."""
        return [
            (one.offset, one.value)
            for one in self.written
            if start <= one.offset < self.stable_offset and one.committed and one.ends is None
        ]

    def read(self, start: int) -> list[tuple[int, bytes | None]]:
        found: list[tuple[int, bytes | None]] = []
        for data, aborted in fetches(self.log, start, self.random.choice([1, 100, 300, 5000])):
            found += visible(data, aborted, start)
        return found


def fetches(log: Log, offset: int, size_max: int) -> Iterator[tuple[bytes, list[tuple[int, int]]]]:
    """Yield, for each fetch response, its batches and the (first offset, producer ID) of its aborted transactions."""
    stable_offset = log.last_stable_offset(log.log_end_offset)
    while offset < stable_offset:
        part = log.read(offset, size_max=size_max, offset_max=stable_offset)
        if not part.size:
            return
        end_position = part.ranges[-1].position + part.ranges[-1].size
        bound = log.segments.end_offset_bound(part.first_offset, end_position, log.log_end_offset)
        aborted = log.segments.aborted_transactions(offset, bound)
        data = b"".join(each.read() for each in part.ranges)
        yield data, sorted((each.first_offset, each.producer_id) for each in aborted)
        for _, header in iter_headers(data, incomplete_last=True):
            offset = max(offset, header.next_offset)


def visible(data: bytes, aborted: list[tuple[int, int]], start: int) -> list[tuple[int, bytes | None]]:
    """Return the records of a response that a client returns, without state from earlier responses."""
    found: list[tuple[int, bytes | None]] = []
    leaving_out: set[int] = set()
    for position, header in iter_headers(data, incomplete_last=True):
        while aborted and aborted[0][0] <= header.last_offset:
            leaving_out.add(aborted.pop(0)[1])
        if header.is_control:
            leaving_out.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in leaving_out):
            records = iter_records(data[position : position + header.size])
            found += [(record.offset, record.value) for record in records if record.offset >= start]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_reads_match_the_model(tmp_path: Path, seed: int) -> None:
    """Each read returns exactly the committed records up to the last stable offset."""
    story = Story(tmp_path / "t-0", seed, SMALL)
    for _ in range(120):
        story.step()
        assert story.log.last_stable_offset(story.log.log_end_offset) == story.stable_offset
        start = story.random.randrange(story.log.log_end_offset + 1)
        assert story.read(start) == story.expected(start)


@pytest.mark.parametrize("seed", range(8))
def test_reads_match_the_model_after_compaction(tmp_path: Path, seed: int) -> None:
    """No aborted record is returned, and the last committed value of every key is present."""
    story = Story(tmp_path / "t-0", seed, COMPACTED)
    for number in range(160):
        story.step()
        if number % 20 == 19 and _has_closed_segments(story):
            compact(story.log, now_ms=5000 + number)
        found = story.read(0)
        expected = story.expected(0)
        assert set(found) <= set(expected)
        assert found == sorted(found, key=lambda each: each[0])
        last = {one.key: (one.offset, one.value) for one in story.written if (one.offset, one.value) in set(expected)}
        assert set(last.values()) <= set(found)


def _has_closed_segments(story: Story) -> bool:
    first = next(iter(story.log.segments), None)
    closed = list(story.log.segments.closed)
    return first is not None and bool(closed) and story.log.segments.end_of(closed[0]) <= story.stable_offset


def test_response_lists_only_overlapping_aborted_transactions(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", replace(SMALL, segment_bytes=100_000))
    for sequence in range(300):
        records = idempotent(sequence, transactional=True)
        append_as_leader(log, records, 0, now_ms=1)
        append_as_leader(log, marker(7, committed=False), 0, now_ms=1, origin=Origin.COORDINATOR)
    for offset in (0, 250, 598):
        part = log.read(offset, size_max=200, offset_max=log.log_end_offset)
        end_position = part.ranges[-1].position + part.ranges[-1].size
        bound = log.segments.end_offset_bound(part.first_offset, end_position, log.log_end_offset)
        aborted = log.segments.aborted_transactions(offset, bound)
        assert 1 <= len(aborted) < 10
        assert aborted[0].first_offset == offset
