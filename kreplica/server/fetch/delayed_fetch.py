"""A fetch in progress: reads partitions up to the limits of the response, and waits if there are too few bytes.

``replication.purgatory`` reports changed partitions to its ``Watch``, which a fetch session keeps between its fetches.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall

from kreplica.replication import Partitions
from kreplica.runtime import Reactor
from kreplica.runtime.slices import Steps
from kreplica.server.fetch.dependencies import Quota
from kreplica.server.fetch.partition import FetchPartition, Watch
from kreplica.server.fetch.partition_reads import PartitionReads, Read, Reader, row_without_records
from kreplica.server.fetch.sessions import NO_SESSION, FetchContext, FetchSessions
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import LeaderHints, respond_in_slices, run_handler

INLINE_SECONDS_MAX = 0.002
"""Time after which a fetch reads its remaining partitions in slices."""

READS_PER_CLOCK_CHECK = 64
"""Number of partitions that are read between two checks of the clock."""

STEP_READS, STEP_BUILT_ROWS = 16, 64
"""Maximum partitions read, and maximum response rows built, in one step of a large fetch."""

Row = dict[str, Any]


class FetchResources(Protocol):
    """Objects and limits that all fetches of a broker share.

    :ivar bytes_max: ``fetch.max.bytes``, upper limit of the record bytes in one response.
    :ivar quota: limits consumers; None for no limits.
    """

    bytes_max: int
    metadata: MetadataCache
    partitions: Partitions
    quota: Quota | None
    reactor: Reactor
    reads: PartitionReads
    sessions: FetchSessions


class DelayedFetch:
    """One fetch: reads its partitions, waits for enough data or the timeout, and responds.

    Partitions that change while it waits are read again.

    :param resources: shared by all fetches of the broker.
    :ivar is_large: True if the response is built in slices.
    """

    _size = 0
    _urgent = False
    _superseded = False
    _has_end_callback = False
    _call: IDelayedCall | None = None
    _watch: Watch | None = None
    is_large = False
    _all_read = True
    _leader_hints: LeaderHints | None = None

    def __init__(self, resources: FetchResources, request: Request, reader: Reader, context: FetchContext) -> None:
        body = request.body
        self._resources = resources
        self._request = request
        self._reader = reader
        self._context = context
        bytes_max = min(body.get("max_bytes", resources.bytes_max), resources.bytes_max)
        quota = resources.quota
        self._quota = quota if quota is not None and quota.is_set and not reader.is_follower else None
        if self._quota is not None:
            bytes_max = self._quota.bytes_max(request, bytes_max)
        self._bytes_max = bytes_max
        # The response could never reach a larger value.
        self._min_bytes = min(body["min_bytes"], bytes_max)
        self._wait_s = body["max_wait_ms"] / 1000
        self._reads: dict[FetchPartition, Read] = {}
        self._to_read: Iterator[FetchPartition] = iter(context.to_read)
        if context.session is not None:
            context.session.supersede = self._supersede

    # --- reading -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read all partitions, in slices if there are many, then respond or wait."""
        seconds = self._resources.reactor.seconds
        until_s = seconds() + INLINE_SECONDS_MAX
        for count, fetch_partition in enumerate(self._to_read, 1):
            if fetch_partition.is_requested or self._context.is_full or self._size < self._bytes_max or self._size == 0:
                self._read(fetch_partition)
            if count % READS_PER_CLOCK_CHECK == 0 and (self.is_large or seconds() > until_s):
                self.is_large = True
                run_handler(self._request, self._read_remaining())
                return
        if self._is_enough() or self._wait_s <= 0:
            self._respond()
        else:
            self._wait()

    async def _read_remaining(self) -> None:
        self._all_read = False
        self._wait()  # a partition may change while others are still being read
        self._request.on_abandoned(self._end)
        self._has_end_callback = True
        await self._request.in_slices(self._read_steps())
        if self._superseded:
            return
        self._all_read = True
        if self._is_enough() or self._wait_s <= 0:
            self._respond()
        else:
            self._call_later(self._wait_s, self._respond)

    def _read_steps(self) -> Steps[None]:
        watch = self._watch
        for count, fetch_partition in enumerate(self._to_read, 1):
            if fetch_partition.is_requested or self._context.is_full or self._size < self._bytes_max or self._size == 0:
                self._read(fetch_partition)
                partition = self._reads[fetch_partition].partition
                if watch is not None and partition is not None:
                    watch.add(fetch_partition, partition)
            if count % STEP_READS == 0:
                yield
                if self._superseded:
                    return

    def _read(self, fetch_partition: FetchPartition) -> None:
        before = self._reads.get(fetch_partition)
        size = self._size if before is None else self._size - before.size
        read = self._resources.reads.read(
            self._reader, fetch_partition, self._bytes_max - size, self._hints, at_least_one=size == 0
        )
        fetch_partition.is_requested = False
        self._reads[fetch_partition] = read
        self._size = size + read.size
        if read.urgent:
            self._urgent = True
        session = self._context.session
        if session is not None and read.settled and read.partition is not None:
            session.settle(fetch_partition, read.partition)

    def _hints(self) -> LeaderHints:
        """Return the leader hints of the response; created on demand, because most responses need none."""
        hints = self._leader_hints
        if hints is None:
            resources = self._resources
            hints = LeaderHints(resources.partitions, resources.metadata, self._request.connection.listener)
            self._leader_hints = hints
        return hints

    def _is_enough(self) -> bool:
        return self._urgent or self._size >= self._min_bytes or self._context.is_empty

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Read partitions again when they change; start the timeout if all of them have been read."""
        self._request.has_waited = True
        session = self._context.session
        if session is None:
            watch = Watch(self._changed)
        else:
            watch = session.watch
            session.on_change = self._changed
        self._watch = watch
        watch.is_awaited = partial(self._resources.reads.needs_read, self._reader, self._reads)
        for fetch_partition, read in self._reads.items():
            if read.partition is not None:
                watch.add(fetch_partition, read.partition)
        if self._all_read:
            self._call_later(self._wait_s, self._respond)

    def _changed(self, fetch_partitions: list[FetchPartition]) -> None:
        for each in fetch_partitions:
            self._read(each)
        if self._all_read and self._is_enough():
            self._respond()
            return
        assert self._watch is not None
        for each in fetch_partitions:
            partition = self._reads[each].partition
            if partition is not None:
                self._watch.add(each, partition)

    def _supersede(self) -> None:
        """Respond with the data read so far, because the next fetch of the session has arrived."""
        self._superseded = True
        self._respond()

    def _call_later(self, delay_s: float, work: Any) -> None:
        if not self._has_end_callback:
            self._has_end_callback = True
            self._request.on_abandoned(self._end)
        self._call = self._resources.reactor.callLater(delay_s, work)

    def _end(self) -> None:
        """Cancel the timeout and stop watching partitions."""
        call, self._call = self._call, None
        if call is not None and call.active():
            call.cancel()
        session = self._context.session
        watch, self._watch = self._watch, None  # breaks a reference cycle, since garbage collection stalls the reactor
        if session is not None:
            session.on_change = session.supersede = session.watch.is_awaited = None
        elif watch is not None:
            watch.is_awaited = None
            watch.clear()

    # --- response ----------------------------------------------------------------------------------------------------

    def _respond(self) -> None:
        self._end()
        if self._quota is not None and self._quota.withhold_s(self._request, self._size) > 0.0:
            session_id = self._resources.sessions.withhold(self._context, self._reads)
            self._request.respond(response_body(0, session_id, []))
            return
        if self.is_large:
            self._request.build_in_slices()
            respond_in_slices(self._request, self._response_steps())
            return
        rows: dict[FetchPartition, Row] = {}
        is_follower = self._reader.is_follower
        for fetch_partition, read in self._reads.items():
            for bucket in read.throttles:
                bucket.use(read.size)
            if read.size and not is_follower:
                read.partition.bytes_out += read.size  # type: ignore[union-attr]  # a read with records has a partition
            row = read.row
            if row is None:
                assert read.partition is not None
                row = row_without_records(self._reader, fetch_partition, read.partition)
            rows[fetch_partition] = row
        session_id, included_rows = self._context.finish(rows)
        responses: list[Row] = []
        last: FetchPartition | None = None
        for fetch_partition, row in included_rows:
            if last is None or fetch_partition.topic != last.topic or fetch_partition.topic_id != last.topic_id:
                responses.append(
                    {"topic": fetch_partition.topic, "topic_id": fetch_partition.topic_id, "partitions": []}
                )
                last = fetch_partition
            responses[-1]["partitions"].append(row)
        response = response_body(0, session_id, responses)
        if self._leader_hints is not None:
            response["node_endpoints"] = self._leader_hints.endpoints()
        self._request.respond(response)

    def _response_steps(self) -> Steps[Row]:
        """Build a large response."""
        context = self._context
        responses: list[Row] = []
        last: FetchPartition | None = None
        is_follower = self._reader.is_follower
        for count, (fetch_partition, read) in enumerate(self._reads.items(), 1):
            for bucket in read.throttles:
                bucket.use(read.size)
            if read.size and not is_follower:
                read.partition.bytes_out += read.size  # type: ignore[union-attr]  # a read with records has a partition
            row = read.row
            if row is None:
                assert read.partition is not None
                row = row_without_records(self._reader, fetch_partition, read.partition)
            if context.includes(fetch_partition, row):
                if last is None or fetch_partition.topic != last.topic or fetch_partition.topic_id != last.topic_id:
                    responses.append(
                        {"topic": fetch_partition.topic, "topic_id": fetch_partition.topic_id, "partitions": []}
                    )
                    last = fetch_partition
                responses[-1]["partitions"].append(row)
            if count % STEP_BUILT_ROWS == 0:
                yield
        session_id = NO_SESSION if context.session is None else context.session.session_id
        response = response_body(0, session_id, responses)
        if self._leader_hints is not None:
            response["node_endpoints"] = self._leader_hints.endpoints()
        return response


def response_body(error_code: int, session_id: int, responses: list[Row]) -> Row:
    """Return the body of a response."""
    return {"throttle_time_ms": 0, "error_code": error_code, "session_id": session_id, "responses": responses}
