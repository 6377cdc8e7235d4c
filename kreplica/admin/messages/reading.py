"""Reads pages of a topic's records from a start position, the oldest or the newest first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from kreplica.admin.messages.fetching import ChunkFetcher, Round
from kreplica.admin.messages.newest_first import NewestFirst
from kreplica.admin.messages.pages import (
    FETCHED_ROUNDS_MAX,
    PAGE_BYTES_MAX,
    RETRY_DELAY_S,
    SECONDS_MAX,
    Page,
    PageRequest,
    no_leader_responds,
    time_of,
)
from kreplica.admin.messages.positions import NEWEST, Span
from kreplica.admin.messages.scanning import Document, ScanLimits
from kreplica.admin.messages.start_positions import unread_spans
from kreplica.admin.peers.leaders import Leaders
from kreplica.formats.record_schemas import RecordSchemas
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause


class MessageReader:
    """Reads from the leaders of the partitions."""

    def __init__(self, runtime: Runtime, leaders: Leaders, schemas: RecordSchemas) -> None:
        self._reactor = runtime.reactor
        self._leaders = leaders
        self.fetcher = ChunkFetcher(leaders, runtime.offload, schemas)

    async def page(self, request: PageRequest) -> Document:
        """Return records merged by time; records of one partition keep their order.

        :raise Problem: 400 for a malformed ``after`` or too many partitions; 404 for an unknown partition; 503 if no
            leader responds.
        """
        page = Page(await unread_spans(self._leaders, request))
        if request.order == NEWEST:
            messages = await NewestFirst(self._reactor, self.fetcher, page, request).messages()
        else:
            await self._read_forwards(page, request)
            messages = _select(page, request.limit)
        if page.problems and not page.scanned:
            raise no_leader_responds(page.problems)
        return page.document(request, messages)

    async def _read_forwards(self, page: Page, request: PageRequest) -> None:
        until_s = self._reactor.seconds() + SECONDS_MAX
        rounds = 0
        while self._needs_more(page, request) and self._reactor.seconds() < until_s and rounds < FETCHED_ROUNDS_MAX:
            rounds += 1
            if not await self._fetch_round(page, request, rounds, until_s) and page.unread():
                await pause(self._reactor, RETRY_DELAY_S)

    def _needs_more(self, page: Page, request: PageRequest) -> bool:
        return bool(
            page.found_count < request.limit
            and page.scanned < request.scan_limit
            and page.found_bytes < PAGE_BYTES_MAX
            and page.unread()
        )

    async def _fetch_round(self, page: Page, request: PageRequest, round_number: int, until_s: float) -> bool:
        """Fetch once from every leader.

        :param round_number: number of this round, counted from 1.
        :return: True if there was progress.
        """
        limits = ScanLimits(
            matches=request.limit - page.found_count,
            records=request.scan_limit - page.scanned,
            match_bytes=PAGE_BYTES_MAX - page.found_bytes,
            is_late=lambda: self._reactor.seconds() >= until_s,
        )
        fetched = await self.fetcher.round(request.topic, rotate(page.unread(), round_number), limits)
        _add_results(page, fetched)
        return bool(fetched.scanned or fetched.out_of_range)


def rotate(spans: dict[int, Span], by: int) -> dict[int, Span]:
    """Rotate the spans, so that each round starts at a different partition; a response may be full after the first."""
    numbers = list(spans)
    first = by % len(numbers)
    return {number: spans[number] for number in (*numbers[first:], *numbers[:first])}


def _add_results(page: Page, fetched: Round) -> None:
    page.count(fetched)
    for number, start_offset in fetched.out_of_range.items():
        page.spans[number].next_offset = start_offset
    for number, scanned in fetched.scanned.items():
        page.spans[number].next_offset = scanned.next_offset
        page.offsets.setdefault(number, []).append(scanned.offsets)
        page.found.setdefault(number, []).extend(scanned.found)
        page.found_count += len(scanned.found)
        page.found_bytes += scanned.found_bytes


def merge_by_time(found: Mapping[int, Sequence[Document]]) -> Iterable[Document]:
    """Merge records of all partitions by time; records of one partition keep their order."""
    return heapq.merge(*(found[number] for number in sorted(found)), key=time_of)


def _select(page: Page, limit: int) -> list[Document]:
    """Return at most ``limit`` records; the others belong to the next page."""
    chosen: list[Document] = []
    size = 0
    for document in merge_by_time(page.found):
        number = document["partition"]
        if len(chosen) < limit and (not chosen or size < PAGE_BYTES_MAX):
            chosen.append(document)
            size += document["size_bytes"]
        else:
            span = page.spans[number]
            span.next_offset = min(span.next_offset, document["offset"])
    return chosen
