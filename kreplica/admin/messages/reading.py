"""Reads pages of a topic's records from a start position, with an optional search."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kreplica.admin.http.problems import Problem
from kreplica.admin.messages.fetching import ChunkFetcher, Round, TopicQuery
from kreplica.admin.messages.positions import PARTITIONS_MAX, Span, decode_spans, encode_spans
from kreplica.admin.messages.scanning import Document, ScanLimits
from kreplica.admin.peers.leaders import EARLIEST, LATEST, Leaders, problem_texts
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause

SECONDS_MAX = 3.0
"""Time limit of a page; when it is reached, the page has the records found so far."""

PAGE_BYTES_MAX = 4 * 1024 * 1024
FETCHED_ROUNDS_MAX = 1000
RETRY_DELAY_S = 0.1


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Where a page starts.

    :param kind: ``earliest``, ``latest``, ``timestamp``, or any other text for an offset.
    :param value: the offset, or the time in milliseconds since 1970.

    ``latest`` starts one page before the end, or one scan limit before it if there is a search.
    """

    kind: str
    value: int = 0


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The options of a request.

    :param partition: None for all.
    :param after: ``next`` of the previous page; ``partition`` and ``begin`` are then ignored.
    :param limit: maximum number of records in the page.
    :param scan_limit: maximum number of records scanned.
    """

    topic: TopicQuery
    partition: int | None
    begin: StartPosition
    after: str | None
    limit: int
    scan_limit: int


@dataclass(slots=True)
class _Page:
    """The state of a page under construction."""

    spans: dict[int, Span]
    found: dict[int, list[Document]] = field(default_factory=dict)
    found_count: int = 0
    found_bytes: int = 0
    scanned: int = 0
    undecodable: list[str] = field(default_factory=list)
    problems: dict[TopicPartition, str] = field(default_factory=dict)

    def left(self) -> dict[int, Span]:
        return {number: span for number, span in self.spans.items() if not span.is_read}


class MessageReader:
    """Reads from the leaders of the partitions."""

    def __init__(self, runtime: Runtime, leaders: Leaders) -> None:
        self._reactor = runtime.reactor
        self._leaders = leaders
        self.fetcher = ChunkFetcher(leaders, runtime.offload)

    async def page(self, wanted: PageRequest) -> Document:
        """Return records merged by time; records of one partition keep their order.

        :raise Problem: 400 for a malformed ``after`` or too many partitions; 404 for an unknown partition; 503 if no
            leader responds.
        """
        page = _Page(await self._spans(wanted))
        until_s = self._reactor.seconds() + SECONDS_MAX
        rounds = 0
        while self._needs_more(page, wanted) and self._reactor.seconds() < until_s and rounds < FETCHED_ROUNDS_MAX:
            rounds += 1
            if not await self._fetch_round(page, wanted, rounds, until_s) and page.left():
                await pause(self._reactor, RETRY_DELAY_S)
        if page.problems and not page.scanned:
            raise _no_leader_responds(page.problems)
        return self._document(page, wanted)

    def _needs_more(self, page: _Page, wanted: PageRequest) -> bool:
        return bool(
            page.found_count < wanted.limit
            and page.scanned < wanted.scan_limit
            and page.found_bytes < PAGE_BYTES_MAX
            and page.left()
        )

    async def _fetch_round(self, page: _Page, wanted: PageRequest, round_number: int, until_s: float) -> bool:
        """Fetch once from every leader.

        :param round_number: number of this round, counted from 1.
        :return: True if there was progress.
        """
        left = page.left()
        limits = ScanLimits(
            matches=wanted.limit - page.found_count,
            records=wanted.scan_limit - page.scanned,
            match_bytes=PAGE_BYTES_MAX - page.found_bytes,
            is_late=lambda: self._reactor.seconds() >= until_s,
        )
        fetched = await self.fetcher.round(wanted.topic, rotate(left, round_number), limits)
        page.problems = fetched.problems
        _add_results(page, fetched)
        return bool(fetched.scanned or fetched.out_of_range)

    def _document(self, page: _Page, wanted: PageRequest) -> Document:
        messages = _chosen(page, wanted.limit)
        return {
            "messages": messages,
            "next": encode_spans(wanted.topic.topic_id, page.spans),
            "scanned": page.scanned,
            "problems": [*problem_texts(page.problems), *page.undecodable[:100]],
        }

    # --- start positions ---------------------------------------------------------------------------------------------

    async def _spans(self, wanted: PageRequest) -> dict[int, Span]:
        topic = wanted.topic
        if wanted.after is not None:
            known = self._leaders.published.topics[topic.name].partitions
            spans = decode_spans(topic.topic_id, wanted.after)
            return {number: span for number, span in spans.items() if number in known}
        keys = [TopicPartition(topic.name, number) for number in self._numbers(wanted)]
        ends = await self._leaders.offsets(dict.fromkeys(keys, LATEST), topic.isolation)
        starts = await self._leaders.offsets(dict.fromkeys(keys, EARLIEST))
        timed: Mapping[TopicPartition, int] = {}
        if wanted.begin.kind == "timestamp":
            timed = (await self._leaders.offsets(dict.fromkeys(keys, wanted.begin.value), topic.isolation)).found
        both = [key for key in keys if key in ends.found and key in starts.found]
        if not both and keys:
            raise _no_leader_responds({**ends.problems, **starts.problems})
        share = _share(wanted.scan_limit if topic.search is not None else wanted.limit, len(both))
        return {
            key.partition: Span(
                _begin(wanted.begin, starts.found[key], ends.found[key], timed.get(key, -1), share), ends.found[key]
            )
            for key in both
        }

    def _numbers(self, wanted: PageRequest) -> Sequence[int]:
        name, known = wanted.topic.name, self._leaders.published.topics[wanted.topic.name].partitions
        if wanted.partition is None:
            if len(known) > PARTITIONS_MAX:
                raise Problem(
                    400,
                    "INVALID_REQUEST",
                    f"{name} has {len(known)} partitions; at most {PARTITIONS_MAX} can be read together",
                    what_to_do="Select one partition: ?partition=0",
                )
            return sorted(known)
        if wanted.partition not in known:
            detail = f"partition {wanted.partition} of {name} does not exist; the topic has {len(known)}"
            raise Problem(404, "UNKNOWN_TOPIC_OR_PARTITION", detail)
        return [wanted.partition]


def _begin(begin: StartPosition, start_offset: int, end_offset: int, timed_offset: int, share: int) -> int:
    """Return the start offset of a partition."""
    if begin.kind == "earliest":
        return start_offset
    if begin.kind == "latest":
        return max(start_offset, end_offset - share)
    if begin.kind == "timestamp":
        return timed_offset if timed_offset >= 0 else end_offset
    return max(start_offset, min(begin.value, end_offset))


def _share(count: int, partitions: int) -> int:
    return -(-count // max(partitions, 1))


def rotate(spans: dict[int, Span], by: int) -> dict[int, Span]:
    """Rotate the spans, so that each round starts with another partition; a response may be full after the first."""
    numbers = list(spans)
    first = by % len(numbers)
    return {number: spans[number] for number in (*numbers[first:], *numbers[:first])}


def _add_results(page: _Page, fetched: Round) -> None:
    for number, start_offset in fetched.out_of_range.items():
        page.spans[number].next_offset = start_offset
    for number, scanned in fetched.scanned.items():
        page.spans[number].next_offset = scanned.next_offset
        page.found.setdefault(number, []).extend(scanned.found)
        page.found_count += len(scanned.found)
        page.found_bytes += scanned.found_bytes
        page.scanned += scanned.count
        page.undecodable += [
            f"partition {number}: the batch at offset {offset} cannot be decoded" for offset in scanned.undecodable
        ]


def merge_by_time(found: Mapping[int, Sequence[Document]]) -> Iterable[Document]:
    """Merge records of all partitions by time; records of one partition keep their order."""
    return heapq.merge(*(found[number] for number in sorted(found)), key=_time)


def _chosen(page: _Page, limit: int) -> list[Document]:
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


def _time(document: Mapping[str, Any]) -> int:
    timestamp_ms: int | None = document["timestamp_ms"]
    return -1 if timestamp_ms is None else timestamp_ms


def _no_leader_responds(problems: Mapping[TopicPartition, str]) -> Problem:
    texts = problem_texts(problems)
    return Problem(
        503,
        "LEADER_NOT_AVAILABLE",
        texts[0] if texts else "no leader of the partitions responds",
        what_to_do="Retry when the partitions have leaders: GET /v1/partitions?state=offline",
        members={"problems": texts},
    )
