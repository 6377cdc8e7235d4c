"""``Reader``: consumes partitions from given offsets, without a group."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import NamedTuple, Self

from kreplica.blocking.cluster import Cluster
from kreplica.blocking.connection import Connection, PendingRequest
from kreplica.blocking.offsets import offsets_by_time
from kreplica.client_core.addresses import Address
from kreplica.client_core.backoff import backoff_s
from kreplica.client_core.errors import ClientError, GaveUp, OffsetOutOfRange
from kreplica.client_core.fetch_requests import (
    TOPIC_NAMES_VERSION_MAX,
    FetchLimits,
    fetch_body,
    grouped_by_topic,
    parse_fetched,
)
from kreplica.client_core.fetched_batches import FetchedRecords, Isolation, ReadBatch, open_batches
from kreplica.client_core.offsets import EARLIEST, LATEST
from kreplica.model import TopicPartition
from kreplica.wire.batches import TimestampType
from kreplica.wire.messages import FETCH
from kreplica.wire.records import Headers

IDLE_S_MAX = 1.0


class OutOfRange(Enum):
    """Action of a reader whose offset is outside the log."""

    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    """Options of a reader, whose memory is bounded by ``fetch_size_max`` per leader, encoded plus decoded.

    :param fetch_wait_s: time for which a broker waits for ``fetch_size_min`` bytes.
    :param fetch_size_max: maximum size of one response.
    :param partition_size_max: maximum size of one partition in a response.
    :param patience_s: a partition fails if it cannot be fetched for this time; None means ``operation_timeout_s``.
    """

    isolation: Isolation = Isolation.READ_UNCOMMITTED
    fetch_wait_s: float = 0.5
    fetch_size_min: int = 1
    fetch_size_max: int = 16 << 20
    partition_size_max: int = 1 << 20
    out_of_range: OutOfRange = OutOfRange.FAIL
    patience_s: float | None = None


class ReadRecord(NamedTuple):
    """A record with its metadata."""

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
    """Progress of one partition.

    :ivar position: offset of the next record to return, after gaps and control records.
    :ivar fetch_offset: next offset to fetch.
    :ivar retry_at_s: earliest time of the next attempt.
    :ivar failures: number of consecutive failures; the first was at ``failing_since_s``.
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
class _PendingFetch:
    """A Fetch request in flight."""

    sent: PendingRequest
    positions: dict[TopicPartition, int]


class Reader:
    """Consumes partitions; while a response is being decoded, the next request to its leader is in flight.

    There is one request in flight per leader, and responses are processed in order of arrival.  Partitions that
    returned records most recently come last in a request, so that no partition starves.

    :param start: start of each partition: an offset, ``EARLIEST`` or ``LATEST``.
    :param ends: end offset of each partition; a partition without one is consumed without a limit.
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
        self._pending_fetches: dict[Connection, _PendingFetch] = {}
        self._fetched: deque[FetchedRecords] = deque()
        ends_by_partition = ends or {}
        starts = self._resolve_start(start)
        # In request order; a partition that returned records moves to the end.
        self._progress = {each: _Progress(starts[each], ends_by_partition.get(each), starts[each]) for each in start}

    def _resolve_start(self, start: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        to_resolve = {partition: time for partition, time in start.items() if time in (EARLIEST, LATEST)}
        offsets = offsets_by_time(self._cluster, to_resolve, self._options.isolation) if to_resolve else {}
        return {each: offsets[each].offset if each in offsets else offset for each, offset in start.items()}

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Offset of the next record of each partition.

        It advances when ``read`` returns or ``batches`` yields a batch; ``records`` also advances it by whole batches.
        """
        return {partition: progress.position for partition, progress in self._progress.items()}

    @property
    def is_done(self) -> bool:
        """True if every partition has reached its end."""
        return all(each.end is not None and each.position >= each.end for each in self._progress.values())

    def read(self, timeout_s: float = 1.0) -> list[ReadBatch]:
        """Return the next records: those of one partition in one response.

        :param timeout_s: maximum time to wait for records.
        :return: batches; empty after the timeout or if ``is_done``.
        :raise OffsetOutOfRange: an offset is outside the log, and ``out_of_range`` is ``FAIL``.
        :raise ClientError: a partition cannot be fetched.
        """
        return list(self._deliver(*self._next_batches(timeout_s)))

    def _next_batches(self, timeout_s: float) -> tuple[list[ReadBatch], FetchedRecords | None]:
        """Return the decoded batches of one partition in one response, and the encoded records they came from."""
        deadline_s = self._runtime.clock() + timeout_s
        while True:
            while self._fetched:
                fetched = self._fetched.popleft()
                batches = self._decode(fetched)
                if batches:
                    return batches, fetched
            if self.is_done:
                return [], None
            left_s = deadline_s - self._runtime.clock()
            self._send_fetches()
            self._receive(max(0.0, left_s))
            if left_s <= 0 and not self._fetched:
                return [], None

    def _deliver(self, batches: list[ReadBatch], fetched: FetchedRecords | None) -> Iterator[ReadBatch]:
        """Yield decoded batches and advance the position; batches that are not consumed are fetched again."""
        if fetched is None:
            return
        progress = self._progress[fetched.partition]
        try:
            for batch in batches:
                progress.position = batch.next_offset
                yield batch
            progress.position = self._end_of(fetched, progress)
        finally:
            if progress.position < self._end_of(fetched, progress):
                progress.fetch_offset = progress.position

    def batches(self) -> Iterator[ReadBatch]:
        """Yield all batches until every partition has reached its end."""
        while not self.is_done:
            yield from self._deliver(*self._next_batches(IDLE_S_MAX))

    def records(self) -> Iterator[ReadRecord]:
        """Yield the records of ``batches``."""
        for (topic, partition), timestamp_type, records, _ in self.batches():
            for offset, timestamp_ms, key, value, headers in records:
                yield ReadRecord(topic, partition, offset, timestamp_ms, timestamp_type, key, value, headers)

    def open_fetched(self, fetched: FetchedRecords, end: int | None) -> list[ReadBatch]:
        """Decode a response; subclasses may override it.

        :param end: end offset of the partition, exclusive; None means no limit.
        :raise CorruptBatch: a batch is damaged.
        """
        return open_batches(fetched, end)

    def close(self) -> None:
        """Close the connections."""
        self._pending_fetches.clear()
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- requests ---

    def _send_fetches(self) -> None:
        """Send a Fetch request to each leader that has none in flight."""
        now_s, core = self._runtime.clock(), self._cluster.core
        busy = {partition for pending in self._pending_fetches.values() for partition in pending.positions}
        partitions_by_leader: dict[Address, list[TopicPartition]] = {}
        for partition, progress in list(self._progress.items()):
            if partition in busy or progress.is_done or progress.retry_at_s > now_s:
                continue
            try:
                leader = core.fresh_leader(partition)
                address = core.address(self._cluster.leader(partition) if leader is None else leader)
                partitions_by_leader.setdefault(address, []).append(partition)
            except ClientError as error:
                self._on_failure(partition, error)
        for address, partitions in partitions_by_leader.items():
            self._send_fetch(address, partitions)

    def _send_fetch(self, address: Address, partitions: list[TopicPartition]) -> None:
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
            if connection in self._pending_fetches or connection.throttle_remaining_s:
                return
            timeout_s = options.fetch_wait_s + self._cluster.options.request_timeout_s
            version = connection.version(FETCH, TOPIC_NAMES_VERSION_MAX)
            sent = connection.send(FETCH, fetch_body(positions, limits), version=version, timeout_s=timeout_s)
        except ClientError as error:
            self._on_failures(partitions, error)
        else:
            self._pending_fetches[connection] = _PendingFetch(sent, positions)

    # --- responses ---

    def _receive(self, timeout_s: float) -> None:
        """Wait for responses until the next retry or timeout at the latest."""
        if not self._pending_fetches:
            self._runtime.sleep(min(timeout_s, self._idle_s()))
            return
        by_socket = {connection.socket: connection for connection in self._pending_fetches}
        ready = self._runtime.wait_readable(list(by_socket), min(timeout_s, self._idle_s()))
        for connection in [by_socket[each] for each in ready]:
            self._receive_from(connection)
        for connection in list(self._pending_fetches):
            try:
                connection.check_deadline()
            except ClientError as error:
                self._on_connection_lost(connection, error)
        if self._fetched:
            self._send_fetches()  # in flight while these responses are decoded

    def _idle_s(self) -> float:
        """Return the time until the next retry, end of throttling or timeout; at most ``IDLE_S_MAX``."""
        now_s = self._runtime.clock()
        times = [each.retry_at_s for each in self._progress.values() if each.retry_at_s > now_s and not each.is_done]
        times += [pending.sent.deadline_s for pending in self._pending_fetches.values()]
        times += [now_s + each.throttle_remaining_s for each in self._connections if each.throttle_remaining_s]
        return max(0.0, min(IDLE_S_MAX, *(time_s - now_s for time_s in times))) if times else IDLE_S_MAX

    def _receive_from(self, connection: Connection) -> None:
        try:
            completed = connection.receive(0)
        except ClientError as error:
            self._on_connection_lost(connection, error)
            return
        for sent in completed:
            pending = self._pending_fetches.pop(connection)
            assert sent is pending.sent
            assert sent.response is not None
            results = parse_fetched(sent.response, pending.positions)
            for partition, result in results.items():
                if isinstance(result, FetchedRecords):
                    self._add_fetched(result)
                else:
                    self._on_failure(partition, result)

    def _on_connection_lost(self, connection: Connection, error: ClientError) -> None:
        self._on_failures(list(self._pending_fetches.pop(connection).positions), error)

    def _add_fetched(self, fetched: FetchedRecords) -> None:
        progress = self._progress[fetched.partition]
        if progress.fetch_offset != fetched.position:
            return  # the position has changed since the request
        progress.fetch_offset = fetched.next_offset
        if len(fetched.data):
            self._fetched.append(fetched)
            self._progress[fetched.partition] = self._progress.pop(fetched.partition)  # to the end of the queue
        else:
            progress.failures = 0

    def _decode(self, fetched: FetchedRecords) -> list[ReadBatch]:
        progress = self._progress[fetched.partition]
        if fetched.position != progress.position:
            progress.fetch_offset = progress.position  # earlier records must be fetched again
            return []
        try:
            batches = self.open_fetched(fetched, progress.end)
        except ClientError as error:
            progress.fetch_offset = progress.position
            self._on_failure(fetched.partition, error)
            return []
        progress.failures = 0
        if not batches:
            progress.position = self._end_of(fetched, progress)
        return batches

    def _end_of(self, fetched: FetchedRecords, progress: _Progress) -> int:
        return fetched.next_offset if progress.end is None else min(fetched.next_offset, progress.end)

    # --- failures ---

    def _on_failures(self, partitions: list[TopicPartition], error: ClientError) -> None:
        for partition in partitions:
            self._on_failure(partition, error)

    def _on_failure(self, partition: TopicPartition, error: ClientError) -> None:
        """Delay a partition after a failure.

        :raise ClientError: the error is final, or the partition has been failing for too long.
        """
        progress = self._progress[partition]
        if isinstance(error, OffsetOutOfRange) and self._options.out_of_range is not OutOfRange.FAIL:
            self._reset(partition, progress)
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
        self._cluster.mark_stale()
        wait_s = backoff_s(self._runtime.random, progress.failures, options.backoff_s, options.backoff_s_max)
        progress.retry_at_s = now_s + wait_s

    def _reset(self, partition: TopicPartition, progress: _Progress) -> None:
        time = EARLIEST if self._options.out_of_range is OutOfRange.EARLIEST else LATEST
        offsets = offsets_by_time(self._cluster, {partition: time}, self._options.isolation)
        progress.position = progress.fetch_offset = offsets[partition].offset
