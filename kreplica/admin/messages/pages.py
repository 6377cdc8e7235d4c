"""Pages of records: the request of a caller, and the page under construction."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kreplica.admin.http.problems import Problem
from kreplica.admin.messages.fetching import Round, TopicQuery
from kreplica.admin.messages.positions import OLDEST, Span, encode_spans
from kreplica.admin.messages.scanning import Document
from kreplica.admin.peers.leaders import problem_texts
from kreplica.model import TopicPartition

SECONDS_MAX = 3.0
"""Time limit of a page; when it is reached, the page contains the records found so far."""

PAGE_BYTES_MAX = 4 * 1024 * 1024
FETCHED_ROUNDS_MAX = 1000
RETRY_DELAY_S = 0.1


@dataclass(frozen=True, slots=True)
class StartPosition:
    """Start position of a page.

    :param kind: ``earliest``, ``latest``, ``timestamp`` or ``offset``.
    :param value: the offset, or the time in milliseconds since 1970.

    With ``order=oldest``, ``latest`` starts one page before the end; with a search or a filter, ``scan_limit`` records
    before the end.
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
    :param order: ``OLDEST`` or ``NEWEST``.
    """

    topic: TopicQuery
    partition: int | None
    begin: StartPosition
    after: str | None
    limit: int
    scan_limit: int
    order: str = OLDEST


@dataclass(slots=True)
class Page:
    """A page under construction.

    :ivar spans: the unread ranges.
    :ivar found: records by partition, in the order of the page.
    :ivar scanned: the number of scanned records, including those that are scanned again.
    :ivar offsets: by partition, the offsets of the scanned records in each chunk that was read completely.
    """

    spans: dict[int, Span]
    found: dict[int, list[Document]] = field(default_factory=dict)
    found_count: int = 0
    found_bytes: int = 0
    scanned: int = 0
    offsets: dict[int, list[array[int]]] = field(default_factory=dict)
    filter_errors: int = 0
    filter_error: str | None = None
    undecodable: list[str] = field(default_factory=list)
    problems: dict[TopicPartition, str] = field(default_factory=dict)

    def unread(self) -> dict[int, Span]:
        """Return the ranges that are not empty."""
        return {number: span for number, span in self.spans.items() if not span.is_read}

    def count(self, fetched: Round) -> None:
        """Add the counts and errors of a round, but not its records."""
        self.problems = fetched.problems
        for number, scanned in fetched.scanned.items():
            self.scanned += scanned.count
            self.filter_errors += scanned.filter_errors
            self.filter_error = self.filter_error or scanned.filter_error
            self.undecodable += [
                f"partition {number}: the batch at offset {offset} cannot be decoded" for offset in scanned.undecodable
            ]

    def _scanned_once(self) -> int:
        """Return the number of scanned records without those in the unread ranges, which the next page scans again."""
        count = sum(len(offsets) for chunks in self.offsets.values() for offsets in chunks)
        return count - sum(
            bisect_left(offsets, span.end_offset) - bisect_left(offsets, span.next_offset)
            for number, span in self.spans.items()
            if not span.is_read
            for offsets in self.offsets.get(number, ())
        )

    def document(self, request: PageRequest, messages: Sequence[Document]) -> Document:
        """Return the response."""
        return {
            "messages": messages,
            "next": encode_spans(request.topic.topic_id, request.order, self.spans),
            "scanned": self._scanned_once(),
            "remaining": sum(span.size for span in self.spans.values()),
            "filter_errors": self.filter_errors,
            "filter_error": self.filter_error,
            "problems": [*problem_texts(self.problems), *self.undecodable[:100]],
        }


def time_of(document: Mapping[str, object]) -> int:
    """Return the timestamp of a record, -1 if it has none."""
    timestamp_ms = document["timestamp_ms"]
    return timestamp_ms if isinstance(timestamp_ms, int) else -1


def no_leader_responds(problems: Mapping[TopicPartition, str]) -> Problem:
    """Return the problem of a page for which no partition could be read."""
    texts = problem_texts(problems)
    return Problem(
        503,
        "LEADER_NOT_AVAILABLE",
        texts[0] if texts else "none of the partitions' leaders responds",
        what_to_do="Retry when the partitions have leaders: GET /v1/partitions?state=offline",
        members={"problems": texts},
    )
