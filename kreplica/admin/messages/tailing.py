"""Streams new records of a topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from kreplica.admin.cluster_state.published_metadata import topic_of
from kreplica.admin.http.api import ServerEvent
from kreplica.admin.messages.fetching import ChunkFetcher, Round, TopicQuery
from kreplica.admin.messages.positions import Span
from kreplica.admin.messages.reading import merge_by_time, rotate
from kreplica.admin.messages.scanning import ScanLimits
from kreplica.admin.peers.leaders import LATEST, Leaders, problem_texts
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor, Runtime
from kreplica.runtime.pause import pause

POLL_INTERVAL_S = 0.25
PROGRESS_INTERVAL_S = 1.0
BACKLOG_MAX = 10_000
"""Maximum backlog per partition; older records are skipped and reported."""

ROUND_LIMITS = ScanLimits(matches=500, records=10_000, match_bytes=1024 * 1024)
NO_END = 2**63 - 1


class MessageTail:
    """Polls the leaders at an interval; keeps no records for slow clients."""

    def __init__(self, runtime: Runtime, leaders: Leaders, fetcher: ChunkFetcher) -> None:
        self._reactor = runtime.reactor
        self._leaders = leaders
        self._fetcher = fetcher

    async def events(self, topic: TopicQuery, partitions: Sequence[int]) -> AsyncIterator[ServerEvent]:
        """Yield ``message`` for each record, ``skipped`` for skipped offsets, and ``problems`` when they change.

        ``progress`` is yielded at most once per second, when records were scanned.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION after the topic is deleted.
        """
        spans: dict[int, Span] = {}
        problems: Sequence[str] = []
        rounds = 0
        progress = _Progress(self._reactor)
        while True:
            self._check(topic)
            await self._begin(topic, [number for number in partitions if number not in spans], spans)
            fetched = await self._fetcher.round(topic, rotate(spans, rounds), ROUND_LIMITS) if spans else Round()
            rounds += 1
            current = problem_texts(fetched.problems)
            if current != problems:
                problems = current
                yield ServerEvent("problems", {"problems": current})
            for event in (*_events(spans, fetched), *progress.events(fetched)):
                yield event
            if not fetched.scanned:
                await pause(self._reactor, POLL_INTERVAL_S)

    def _check(self, topic: TopicQuery) -> None:
        if topic_of(self._leaders.published, topic.name).topic_id != topic.topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} was deleted and recreated")

    async def _begin(self, topic: TopicQuery, partitions: Sequence[int], spans: dict[int, Span]) -> None:
        """Start at the end of each partition whose leader responds."""
        if partitions:
            keys = [TopicPartition(topic.name, number) for number in partitions]
            ends = await self._leaders.offsets(dict.fromkeys(keys, LATEST), topic.isolation)
            for key, end_offset in ends.found.items():
                spans[key.partition] = Span(end_offset, NO_END)


class _Progress:
    """Counts the scanned records of a stream."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._shown: dict[str, object] = {}
        self._next_s = 0.0
        self._scanned = self._filter_errors = 0
        self._filter_error: str | None = None

    def events(self, fetched: Round) -> Iterable[ServerEvent]:
        """Count a round, and return the event to send."""
        for scanned in fetched.scanned.values():
            self._scanned += scanned.count
            self._filter_errors += scanned.filter_errors
            self._filter_error = scanned.filter_error or self._filter_error
        document: dict[str, object] = {
            "scanned": self._scanned,
            "filter_errors": self._filter_errors,
            "filter_error": self._filter_error,
        }
        now_s = self._reactor.seconds()
        if not self._scanned or document == self._shown or now_s < self._next_s:
            return ()
        self._shown, self._next_s = document, now_s + PROGRESS_INTERVAL_S
        return (ServerEvent("progress", document),)


def _events(spans: dict[int, Span], fetched: Round) -> Iterable[ServerEvent]:
    for number, start_offset in fetched.out_of_range.items():
        # ``NO_END`` means that the log was truncated below the next offset: read it from the start.
        yield from _skip(number, spans[number], start_offset if start_offset != NO_END else 0)
    for number, scanned in fetched.scanned.items():
        spans[number].next_offset = scanned.next_offset
    for document in merge_by_time({number: scanned.found for number, scanned in fetched.scanned.items()}):
        yield ServerEvent("message", document, f"{document['partition']}-{document['offset']}")
    for number, high_watermark in fetched.high_watermarks.items():
        if high_watermark - spans[number].next_offset > BACKLOG_MAX:
            yield from _skip(number, spans[number], high_watermark - BACKLOG_MAX)


def _skip(number: int, span: Span, to_offset: int) -> Iterable[ServerEvent]:
    before, span.next_offset = span.next_offset, to_offset
    yield ServerEvent("skipped", {"partition": number, "from_offset": before, "to_offset": to_offset})
