"""Reads a page of records backwards: the newest of all partitions first.

Brokers return records only in increasing order of offsets. Each partition is therefore read in windows of offsets, the
last window first, and the records of a page are merged by time. A record is in the page only if no unread window can
have a newer one: each partition has a *frontier*, the lowest timestamp read so far (or, if records were dropped to save
memory, the highest timestamp of a dropped record), and a record must not be older than the frontier of any partition
that is not read completely. Otherwise the next page reads it again. Partitions with the newest frontiers are read
first, so each page makes progress.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kreplica.admin.messages.fetching import ChunkFetcher
from kreplica.admin.messages.pages import (
    FETCHED_ROUNDS_MAX,
    PAGE_BYTES_MAX,
    RETRY_DELAY_S,
    SECONDS_MAX,
    Page,
    PageRequest,
    time_of,
)
from kreplica.admin.messages.positions import Span
from kreplica.admin.messages.scanning import Document, ScanLimits
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause

WINDOW_MIN = 16
WINDOW_MAX = 20_000
"""Minimum and maximum number of offsets in a window."""

FIRST_WINDOW_MAX = 100
WINDOW_SECONDS = 0.3
"""Windows that are read faster than this are followed by larger ones."""

UNKNOWN_MS = 2**63
"""Frontier of a partition before its first window was read."""

NO_LIMIT = 2**31


@dataclass(slots=True)
class _Backwards:
    """A partition that is read backwards.

    :ivar span: the unread range.
    :ivar found: the matching records, the newest first.
    :ivar frontier_ms: the lowest timestamp read so far.
    :ivar window: the number of offsets in the next window.
    """

    span: Span
    window: int
    found: list[Document] = field(default_factory=list)
    frontier_ms: int = UNKNOWN_MS
    is_unavailable: bool = False

    @property
    def blocks(self) -> bool:
        """True if it may have more records for this page."""
        return not self.span.is_read and not self.is_unavailable


@dataclass(slots=True)
class _Window:
    """The window of a partition that is being read forwards.

    :ivar unread: the unread part.
    :ivar start_offset: start of the range that counts as read when the window is finished; raised if its first records
        are dropped.
    :ivar bytes_max: maximum size of the matching records; one record is kept whatever its size.
    :ivar offsets: the offsets of the scanned records, in increasing order for each chunk.
    :ivar oldest_ms: the lowest timestamp read.
    :ivar dropped_ms: the highest timestamp of a dropped record; None if none was dropped.
    """

    unread: Span
    start_offset: int
    bytes_max: int
    found: deque[Document] = field(default_factory=deque)
    found_bytes: int = 0
    offsets: list[array[int]] = field(default_factory=list)
    oldest_ms: int | None = None
    dropped_ms: int | None = None

    def add(self, records: Sequence[Document], size_bytes: int) -> None:
        """Add matching records; drop the oldest ones beyond the maximum size."""
        self.found.extend(records)
        self.found_bytes += size_bytes
        while self.found_bytes > self.bytes_max and len(self.found) > 1:
            dropped = self.found.popleft()
            self.found_bytes -= dropped["size_bytes"]
            self.start_offset = dropped["offset"] + 1
            time_ms = time_of(dropped)
            self.dropped_ms = time_ms if self.dropped_ms is None else max(self.dropped_ms, time_ms)


class NewestFirst:
    """Reads one page.

    :param page: its spans are updated.
    """

    def __init__(self, reactor: Reactor, fetcher: ChunkFetcher, page: Page, request: PageRequest) -> None:
        self._reactor = reactor
        self._fetcher = fetcher
        self._page = page
        self._request = request
        share = -(-request.limit // max(len(page.spans), 1))
        window = max(WINDOW_MIN, min(share, FIRST_WINDOW_MAX))
        self._partitions = {number: _Backwards(span, window) for number, span in page.spans.items()}
        self._until_s = reactor.seconds() + SECONDS_MAX
        self._has_progress = False

    async def messages(self) -> list[Document]:
        """Return the records of the page, the newest first."""
        rounds = 0
        while (numbers := self._next_partitions()) and rounds < FETCHED_ROUNDS_MAX:
            if self._is_late() or (self._has_progress and self._page.scanned >= self._request.scan_limit):
                break
            rounds += 1
            if not await self._read_windows(numbers):
                if self._reactor.seconds() >= self._until_s:
                    break
                await pause(self._reactor, RETRY_DELAY_S)
        return self._select()

    def _is_late(self) -> bool:
        """Return True after the time limit, if the page has made progress."""
        return self._has_progress and self._reactor.seconds() >= self._until_s

    def _next_partitions(self) -> list[int]:
        """Return the partitions to read next: none if the page is complete."""
        blocking = {number: each for number, each in self._partitions.items() if each.blocks}
        unknown = [number for number, each in blocking.items() if each.frontier_ms == UNKNOWN_MS]
        if unknown:
            return unknown
        last_ms = self._last_ms()
        if last_ms is not None:
            return [number for number, each in blocking.items() if each.frontier_ms > last_ms]
        ordered = sorted(blocking, key=lambda number: -blocking[number].frontier_ms)
        return ordered[: -(-len(ordered) // 2)]

    def _last_ms(self) -> int | None:
        """Return the time of the last record of the page if enough records were found, otherwise None."""
        rows = [(time_of(row), row["size_bytes"]) for each in self._partitions.values() for row in each.found]
        size = 0
        for count, (time_ms, size_bytes) in enumerate(heapq.nlargest(self._request.limit, rows), start=1):
            size += size_bytes
            if count == self._request.limit or size >= PAGE_BYTES_MAX:
                return time_ms
        return None

    async def _read_windows(self, numbers: Sequence[int]) -> bool:
        """Read the next window of some partitions.

        :return: False if no partition could be read.
        """
        windows = {}
        started_s = self._reactor.seconds()
        size_max = max(WINDOW_MIN, self._request.scan_limit // len(numbers))
        for number in numbers:
            each = self._partitions[number]
            start = max(each.span.next_offset, each.span.end_offset - min(each.window, size_max))
            windows[number] = _Window(Span(start, each.span.end_offset), start, PAGE_BYTES_MAX // len(numbers))
        has_progress = False
        for _ in range(FETCHED_ROUNDS_MAX):
            unread = {number: window.unread for number, window in windows.items() if not window.unread.is_read}
            if not unread or self._is_late():
                break
            if not await self._fetch(unread, windows):
                for number in unread:
                    self._partitions[number].is_unavailable = has_progress
                break
            has_progress = True
        is_fast = self._reactor.seconds() - started_s < WINDOW_SECONDS
        for number, window in windows.items():
            if window.unread.is_read:
                self._finish(self._partitions[number], window, is_fast)
                kept = [offsets[bisect_left(offsets, window.start_offset) :] for offsets in window.offsets]
                self._page.offsets.setdefault(number, []).extend(kept)
        return has_progress

    async def _fetch(self, unread: dict[int, Span], windows: dict[int, _Window]) -> bool:
        limits = ScanLimits(matches=NO_LIMIT, records=NO_LIMIT, match_bytes=PAGE_BYTES_MAX, is_late=self._is_late)
        fetched = await self._fetcher.round(self._request.topic, unread, limits)
        self._page.count(fetched)
        for number, start_offset in fetched.out_of_range.items():
            unread_part = windows[number].unread
            if start_offset != unread_part.end_offset:  # not truncated: only the oldest records were deleted
                self._partitions[number].span.next_offset = min(start_offset, unread_part.end_offset)
            unread_part.next_offset = min(start_offset, unread_part.end_offset)
        for number, scanned in fetched.scanned.items():
            window = windows[number]
            window.unread.next_offset = scanned.next_offset
            window.add(scanned.found, scanned.found_bytes)
            window.offsets.append(scanned.offsets)
            if scanned.oldest_ms is not None:
                oldest_ms = window.oldest_ms
                window.oldest_ms = scanned.oldest_ms if oldest_ms is None else min(oldest_ms, scanned.oldest_ms)
        return bool(fetched.scanned or fetched.out_of_range)

    def _finish(self, partition: _Backwards, window: _Window, is_fast: bool) -> None:
        """Add a window that was read completely."""
        self._has_progress = True
        partition.found += reversed(window.found)
        kept = partition.span.end_offset - window.start_offset
        partition.span.end_offset = max(window.start_offset, partition.span.next_offset)
        oldest_ms = window.oldest_ms
        if window.dropped_ms is not None:
            # Dropped records are unread. As timestamps can be in any order, the newest kept record must not be older
            # than the frontier, because the page would then be empty.
            oldest_ms = min(window.dropped_ms, time_of(partition.found[0]))
        if oldest_ms is not None:
            partition.frontier_ms = min(partition.frontier_ms, oldest_ms)
        if window.dropped_ms is not None:
            partition.window = max(kept, WINDOW_MIN)
        elif is_fast:
            partition.window = min(partition.window * 2, WINDOW_MAX)
        else:
            partition.window = max(partition.window // 2, WINDOW_MIN)

    # --- result ------------------------------------------------------------------------------------------------------

    def _select(self) -> list[Document]:
        """Return the records of the page; the others belong to the next page."""
        barrier_ms = max((each.frontier_ms for each in self._partitions.values() if each.blocks), default=-2)
        chosen: list[Document] = []
        size = 0
        is_full = False
        for document in self._merge():
            is_full = is_full or len(chosen) >= self._request.limit or (bool(chosen) and size >= PAGE_BYTES_MAX)
            is_full = is_full or time_of(document) < barrier_ms
            if is_full:
                span = self._partitions[document["partition"]].span
                span.end_offset = max(span.end_offset, document["offset"] + 1)
            else:
                chosen.append(document)
                size += document["size_bytes"]
        return chosen

    def _merge(self) -> Iterable[Document]:
        numbers = sorted(self._partitions)
        return heapq.merge(*(self._partitions[number].found for number in numbers), key=lambda row: -time_of(row))
