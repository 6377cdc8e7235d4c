"""``Reader``: records out, of partitions from offsets on, without a group."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import NamedTuple, Self

from kreplica.blocking.cluster import Cluster
from kreplica.blocking.connection import Connection, Pending
from kreplica.blocking.offsets import offsets_by_time
from kreplica.client_core.addresses import Address
from kreplica.client_core.backoff import backoff_s
from kreplica.client_core.errors import ClientError, GaveUp, OffsetOutOfRange
from kreplica.client_core.fetch_requests import BY_NAME_MAX, FetchLimits, fetch_body, grouped_by_topic, parse_fetched
from kreplica.client_core.fetched_batches import FetchedRecords, Isolation, ReadBatch, open_batches
from kreplica.client_core.offsets import EARLIEST, LATEST
from kreplica.model import TopicPartition
from kreplica.wire.batches import TimestampType
from kreplica.wire.messages import FETCH
from kreplica.wire.records import Headers

IDLE_S_MAX = 1.0


class OutOfRange(Enum):
    """What a reader does at an offset that a partition does not have (any more)."""

    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """How a reader reads; what it holds is bounded by ``fetch_size_max`` for each leader, once fetched and once opened.

    :param fetch_wait_s: so long a broker waits for ``fetch_size_min`` bytes.
    :param fetch_size_max: bytes of one answer; ``partition_size_max`` of one partition in it.
    :param patience_s: a partition that cannot be read for so long fails; None: the cluster's ``operation_timeout_s``.
    """

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    fetch_wait_s: float = 0.5
    fetch_size_min: int = 1
    fetch_size_max: int = 16 << 20
    partition_size_max: int = 1 << 20
    out_of_range: OutOfRange = OutOfRange.FAIL
    patience_s: float | None = None


class ReadRecord(NamedTuple):
    """A record with all that is known of it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(slots=True)
class _Progress:
    """Of one partition.

    :ivar position: the next offset that the caller has not been given; right behind gaps and markers.
    :ivar fetch_offset: the next offset to ask for.
    :ivar retry_at_s: not before, after ``failures`` tries that failed, the first at ``failing_since_s``.
    """

    position: int
    end: int | None
    fetch_offset: int
    retry_at_s: float = 0.0
    failures: int = 0
    failing_since_s: float = 0.0

    @property
    def is_done(self) -> bool:
        return self.end is not None and self.fetch_offset >= self.end


@dataclass(slots=True)
class _Asked:
    """A fetch under way."""

    sent: Pending
    positions: dict[TopicPartition, int]


class Reader:
    """Reads some partitions; the next request to each leader is under way while an answer is opened.

    Leaders are served as their answers come, each has one request under way, and in each request the partitions that
    were served last come last: none starves.

    :param start: where to begin in each partition: offsets, ``offsets.EARLIEST`` or ``LATEST``.
    :param ends: where to end; a partition without one goes on for ever.
    """

    def __init__(
        self,
        cluster: Cluster,
        start: Mapping[TopicPartition, int],
        *,
        ends: Mapping[TopicPartition, int] | None = None,
        options: ReaderOptions | None = None,
    ) -> None:
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._options = options or ReaderOptions()
        self._connections = cluster.new_connections()
        self._asked: dict[Connection, _Asked] = {}
        self._fetched: deque[FetchedRecords] = deque()
        given = ends or {}
        starts = self._resolve(start)
        # In the order in which they are to be served.
        self._progress = {each: _Progress(starts[each], given.get(each), starts[each]) for each in start}

    def _resolve(self, start: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        named = {partition: time for partition, time in start.items() if time in (EARLIEST, LATEST)}
        found = offsets_by_time(self._cluster, named, self._options.isolation) if named else {}
        return {each: found[each].offset if each in found else offset for each, offset in start.items()}

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition: all before it was given, or holds nothing for this reader.

        What ``read`` and ``batches`` give counts as soon as they give it, and what ``records`` gives, batch by batch.
        """
        return {partition: progress.position for partition, progress in self._progress.items()}

    @property
    def is_done(self) -> bool:
        """Whether every partition has an end, and has reached it."""
        return all(each.end is not None and each.position >= each.end for each in self._progress.values())

    def read(self, timeout_s: float = 1.0) -> list[ReadBatch]:
        """The next records: what one answer has for one partition.

        :param timeout_s: how long to wait for some.
        :return: nothing, where none came in time or ``is_done``.
        :raise OffsetOutOfRange: as the options say.
        :raise ClientError: a partition cannot be read.
        """
        return list(self._give(*self._next(timeout_s)))

    def _next(self, timeout_s: float) -> tuple[list[ReadBatch], FetchedRecords | None]:
        """What one answer has for one partition, opened but not given yet."""
        deadline_s = self._runtime.clock() + timeout_s
        while True:
            while self._fetched:
                fetched = self._fetched.popleft()
                batches = self._open(fetched)
                if batches:
                    return batches, fetched
            if self.is_done:
                return [], None
            left_s = deadline_s - self._runtime.clock()
            self._ask()
            self._receive(max(0.0, left_s))
            if left_s <= 0 and not self._fetched:
                return [], None

    def _give(self, batches: list[ReadBatch], fetched: FetchedRecords | None) -> Iterator[ReadBatch]:
        """Give what was opened; what the caller does not take is fetched again."""
        if fetched is None:
            return
        progress = self._progress[fetched.partition]
        try:
            for batch in batches:
                progress.position = batch.next_offset
                yield batch
            progress.position = self._behind(fetched, progress)
        finally:
            if progress.position < self._behind(fetched, progress):
                progress.fetch_offset = progress.position

    def batches(self) -> Iterator[ReadBatch]:
        """All that comes, until every partition is at its end; for ever where one has none."""
        while not self.is_done:
            yield from self._give(*self._next(IDLE_S_MAX))

    def records(self) -> Iterator[ReadRecord]:
        """As ``batches``, record by record."""
        for (topic, partition), timestamp_type, records, _ in self.batches():
            for offset, timestamp_ms, key, value, headers in records:
                yield ReadRecord(topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers)

    def open_fetched(self, fetched: FetchedRecords, end: int | None) -> list[ReadBatch]:
        """What ``read`` and ``batches`` are to give of an answer; who opens records otherwise has a subclass.

        :param end: records from this offset on are not wanted.
        :raise CorruptBatch: something is not what was written.
        """
        return open_batches(fetched, end)

    def close(self) -> None:
        """Close the connections."""
        self._asked.clear()
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- asking ---

    def _ask(self) -> None:
        """Let each leader that owes no answer have a request for what it leads and nobody waits for."""
        now_s = self._runtime.clock()
        busy = {partition for asked in self._asked.values() for partition in asked.positions}
        wanted: dict[Address, list[TopicPartition]] = {}
        for partition, progress in list(self._progress.items()):
            if partition in busy or progress.is_done or progress.retry_at_s > now_s:
                continue
            try:
                address = self._cluster.address(self._cluster.leader(partition))
                wanted.setdefault(address, []).append(partition)
            except ClientError as error:
                self._failed(partition, error)
        for address, partitions in wanted.items():
            self._ask_leader(address, partitions)

    def _ask_leader(self, address: Address, partitions: list[TopicPartition]) -> None:
        options = self._options
        positions = {each: self._progress[each].fetch_offset for each in grouped_by_topic(partitions)}
        wait_ms = int(options.fetch_wait_s * 1000)
        limits = FetchLimits(
            isolation=options.isolation,
            wait_ms=wait_ms,
            size_min=options.fetch_size_min,
            size_max=options.fetch_size_max,
            partition_size_max=options.partition_size_max,
        )
        try:
            connection = self._connections.to(address)
            if connection in self._asked or connection.silence_s:
                return
            timeout_s = options.fetch_wait_s + self._cluster.options.request_timeout_s
            version = connection.version(FETCH, BY_NAME_MAX)
            sent = connection.send(FETCH, fetch_body(positions, limits), version=version, timeout_s=timeout_s)
        except ClientError as error:
            self._failed_all(partitions, error)
        else:
            self._asked[connection] = _Asked(sent, positions)

    # --- answers ---

    def _receive(self, timeout_s: float) -> None:
        """Wait for answers, at most so long, or until there is something else to do."""
        if not self._asked:
            self._runtime.sleep(min(timeout_s, self._idle_s()))
            return
        by_socket = {connection.socket: connection for connection in self._asked}
        ready = self._runtime.wait_readable(list(by_socket), min(timeout_s, self._idle_s()))
        for connection in [by_socket[each] for each in ready]:
            self._receive_from(connection)
        for connection in list(self._asked):
            try:
                connection.check_time()
            except ClientError as error:
                self._lost(connection, error)
        if self._fetched:
            self._ask()  # the next answers come while these are opened

    def _idle_s(self) -> float:
        """Until a partition may be tried again, a broker may be asked again, or an answer is late; at most a second."""
        now_s = self._runtime.clock()
        times = [each.retry_at_s for each in self._progress.values() if each.retry_at_s > now_s and not each.is_done]
        times += [asked.sent.deadline_s for asked in self._asked.values()]
        times += [now_s + each.silence_s for each in self._connections if each.silence_s]
        return max(0.0, min(IDLE_S_MAX, *(time_s - now_s for time_s in times))) if times else IDLE_S_MAX

    def _receive_from(self, connection: Connection) -> None:
        try:
            answered = connection.receive(0)
        except ClientError as error:
            self._lost(connection, error)
            return
        for sent in answered:
            asked = self._asked.pop(connection)
            assert sent is asked.sent
            assert sent.answer is not None
            results = parse_fetched(sent.answer, asked.positions)
            for partition, result in results.items():
                if isinstance(result, FetchedRecords):
                    self._take(result)
                else:
                    self._failed(partition, result)

    def _lost(self, connection: Connection, error: ClientError) -> None:
        self._failed_all(list(self._asked.pop(connection).positions), error)

    def _take(self, fetched: FetchedRecords) -> None:
        progress = self._progress[fetched.partition]
        if progress.fetch_offset != fetched.position:
            return  # an answer of before something went wrong
        progress.fetch_offset = fetched.next_offset
        if len(fetched.data):
            self._fetched.append(fetched)
            self._progress[fetched.partition] = self._progress.pop(fetched.partition)  # to the end of the queue
        else:
            progress.failures = 0

    def _open(self, fetched: FetchedRecords) -> list[ReadBatch]:
        progress = self._progress[fetched.partition]
        if fetched.position != progress.position:
            progress.fetch_offset = progress.position  # what was before it has to be fetched again
            return []
        try:
            batches = self.open_fetched(fetched, progress.end)
        except ClientError as error:
            progress.fetch_offset = progress.position
            self._failed(fetched.partition, error)
            return []
        progress.failures = 0
        if not batches:
            progress.position = self._behind(fetched, progress)
        return batches

    def _behind(self, fetched: FetchedRecords, progress: _Progress) -> int:
        return fetched.next_offset if progress.end is None else min(fetched.next_offset, progress.end)

    # --- failures ---

    def _failed_all(self, partitions: list[TopicPartition], error: ClientError) -> None:
        for partition in partitions:
            self._failed(partition, error)

    def _failed(self, partition: TopicPartition, error: ClientError) -> None:
        """Let a partition wait before it is tried again.

        :raise ClientError: that makes no sense, or it has failed for too long.
        """
        progress = self._progress[partition]
        if isinstance(error, OffsetOutOfRange) and self._options.out_of_range is not OutOfRange.FAIL:
            self._start_anew(partition, progress)
            return
        if not error.retriable:
            raise error
        now_s, options = self._runtime.clock(), self._cluster.options
        if not progress.failures:
            progress.failing_since_s = now_s
        progress.failures += 1
        patience_s = options.operation_timeout_s if self._options.patience_s is None else self._options.patience_s
        if now_s - progress.failing_since_s > patience_s:
            raise GaveUp(f"{partition} could not be read for {patience_s:g} s: {error}") from error
        self._cluster.doubt()
        wait_s = backoff_s(self._runtime.random, progress.failures, options.backoff_s, options.backoff_s_max)
        progress.retry_at_s = now_s + wait_s

    def _start_anew(self, partition: TopicPartition, progress: _Progress) -> None:
        time = EARLIEST if self._options.out_of_range is OutOfRange.EARLIEST else LATEST
        found = offsets_by_time(self._cluster, {partition: time}, self._options.isolation)
        progress.position = progress.fetch_offset = found[partition].offset
