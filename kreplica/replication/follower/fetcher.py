"""Replicates partitions from one leader over one connection.

Partitions do not delay each other: a failed partition is left out of the fetches during its backoff, and one whose
last records may not be acknowledged yet is left out until they are synced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.client.connection import Connection, connect
from kreplica.client.errors import ClientError, UnsupportedVersion
from kreplica.errors import ErrorCode, KafkaError, ProtocolError
from kreplica.model import NO_BROKER_EPOCH, ZERO_UUID, Endpoint, TopicPartition
from kreplica.replication.follower.fetch_requests import FetchRequests
from kreplica.replication.follower.fetch_session import FetchSession
from kreplica.replication.follower.fetcher_config import FetcherConfig
from kreplica.replication.follower.follower_state import FollowerState, NextStep
from kreplica.replication.follower.leader_range import Ranges, find_ranges
from kreplica.replication.partition import Partition
from kreplica.replication.retries import Retries
from kreplica.replication.throttle import ReplicationThrottle, TokenBucket
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.runtime.time_slice import TimeSlice
from kreplica.wire.messages import FETCH

log = Logger()

DIVERGENCE_FROM = 12
"""First version of Fetch whose response contains the diverging epoch (KIP-595)."""

PENDING_MAX = 2
"""Maximum number of pending fetches: the long-polling one, and one with changed positions."""

REJECTED_SESSIONS_MAX = 3
"""Consecutive session errors before the fetcher disconnects and backs off."""

THROTTLE_CHECK_SECONDS = 1.0
"""Maximum delay before a throttled partition is checked against the rate again."""

_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FetcherDependencies:
    """Dependencies shared by all fetchers of one broker; see ``Fetchers``."""

    runtime: Runtime
    broker_id: int
    broker_epoch: Callable[[], int]
    endpoint_of: Callable[[int], Endpoint | None]
    config: FetcherConfig
    throttle: ReplicationThrottle | None


class _Sent(NamedTuple):
    """A pending fetch."""

    response: Deferred[Row]
    number: int
    generation: int


class Fetcher:
    """Fetcher for one leader; stays connected while it has partitions.

    :param leader_id: ID of the leader; its address may change.
    """

    def __init__(self, dependencies: FetcherDependencies, leader_id: int) -> None:
        self.leader_id = leader_id
        self._dependencies = dependencies
        self._config = dependencies.config
        self._timeout_s = self._config.timeout_s + self._config.wait_ms_max / 1000
        self._reactor = dependencies.runtime.reactor
        self._session: FetchSession[FollowerState] = FetchSession()
        self._requests = FetchRequests(dependencies.broker_id, self._config)
        self._states: dict[TopicPartition, FollowerState] = {}
        self._by_id: dict[tuple[UUID, int], FollowerState] = {}
        self._retries = Retries(self._reactor, self._fetch_due)
        self._changes_call: IDelayedCall | None = None
        self._connection: Connection | None = None
        self._version = DIVERGENCE_FROM
        self._sent: deque[_Sent] = deque()
        self._running: Deferred[None] | None = None
        self._awaited: Deferred[Any] | None = None
        self._idle: Deferred[None] | None = None
        self._broker_epoch = NO_BROKER_EPOCH
        self._failures = 0
        self._rejected_sessions = 0
        self._closed = False
        self.problem = ""  # error of the last fetch; empty if it succeeded

    @property
    def pending(self) -> tuple[int, int] | None:
        """Identity of the oldest pending fetch; None if no fetch is pending."""
        return (self._sent[0].generation, self._sent[0].number) if self._sent else None

    @property
    def keys(self) -> list[TopicPartition]:
        """The partitions that are fetched."""
        return list(self._states)

    def __len__(self) -> int:
        return len(self._states)

    # --- partitions --------------------------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Start fetching a partition, replacing its state from an earlier epoch."""
        self.remove(partition.topic_partition)
        state = FollowerState(partition, self._config.partition_bytes_max)
        self._states[state.key] = state
        if state.topic_id != ZERO_UUID:
            self._by_id[state.topic_id, state.key.partition] = state
        self._proceed(state, NextStep.FETCH if state.prepare() else NextStep.LATER)
        if self._running is None and not self._closed:
            self._running = Deferred.fromCoroutine(self._run())
            self._running.addErrback(
                lambda failure: log.failure("fetching from broker {id} stopped", failure, id=self.leader_id)
            )

    def remove(self, key: TopicPartition) -> None:
        """Stop fetching a partition and discard its pending responses."""
        state = self._states.pop(key, None)
        if state is not None:
            self._by_id.pop((state.topic_id, key.partition), None)
            self._session.leave_out(key)
            self._requests.forget(key)
            state.partition.watchers.pop(self, None)

    def changed(self, partitions: set[Partition]) -> None:
        """Resume partitions whose records were synced; the next fetch acknowledges them."""
        for partition in sorted(partitions, key=lambda p: p.topic_partition):
            state = self._states.get(partition.topic_partition)
            if self in partition.watchers and state is not None and state.may_acknowledge:
                del partition.watchers[self]
                self._fetch_next(state)

    def close(self) -> Deferred[None]:
        """Stop and close the connection; fires when it is closed."""
        self._closed = True
        for key in list(self._states):
            self.remove(key)
        self._retries.clear()
        if self._changes_call is not None:
            self._changes_call.cancel()
            self._changes_call = None
        if self._awaited is not None:
            self._awaited.cancel()
        connection, self._connection = self._connection, None
        return connection.close() if connection is not None else succeed(None)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _proceed(self, state: FollowerState, step: NextStep) -> None:
        """Carry out the next step of a partition."""
        if step is NextStep.FETCH:
            if state.may_acknowledge:
                self._fetch_next(state)
            else:
                # The next fetch acknowledges all records before its offset.
                self._session.leave_out(state.key)
                state.partition.add_watcher(self)
        elif step is NextStep.LATER:
            self._fetch_later(state, self._config.backoff_s(state.failures))

    def _fetch_next(self, state: FollowerState) -> None:
        throttles = self._throttles_of(state)
        if throttles and (wait_s := max(bucket.seconds_until_free for bucket in throttles)) > 0:
            # The rate may be raised in the meantime, or the plan with this throttle may end.
            self._fetch_later(state, min(wait_s, THROTTLE_CHECK_SECONDS))
            return
        self._session.request(state)
        # If no fetch is pending and the loop is not idle, the next fetch is about to be sent.
        if self._changes_call is None and (self._sent or self._idle is not None):
            self._changes_call = self._reactor.callLater(0, self._send_changes)

    def _fetch_later(self, state: FollowerState, delay_s: float) -> None:
        self._session.leave_out(state.key)
        self._retries.add(state, delay_s)

    def _fetch_due(self, due: list[FollowerState]) -> None:
        for state in due:
            if self._states.get(state.key) is state:
                self._proceed(state, NextStep.FETCH)

    def _send_changes(self) -> None:
        """Send a fetch with changed positions without waiting for the pending one.

        The leader completes the pending fetch when the next one of the session arrives.
        """
        self._changes_call = None
        if self._idle is not None:
            idle, self._idle = self._idle, None
            idle.callback(None)
        elif self._session.has_unsent_changes and self._session.is_established and 0 < len(self._sent) < PENDING_MAX:
            self._send()

    # --- connection --------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while not self._closed:
                try:
                    connection = self._connection = await self._wait(self._connect())
                    self._version = connection.version(FETCH)
                    await self._exchange(connection)
                except CancelledError:
                    raise
                except Exception as error:
                    if not isinstance(error, ClientError | KafkaError | ProtocolError):
                        # Keep following after an unexpected error.
                        log.failure("the fetcher for broker {leader} failed", leader=self.leader_id)
                    await self._back_off(error)
        except CancelledError:
            if not self._closed:
                raise
        finally:
            self._discard_sent()
            self._running = None

    async def _wait(self, deferred: Deferred[Any]) -> Any:
        """Await a deferred that ``close`` can cancel."""
        if self._closed:
            deferred.addErrback(lambda _: None)
            deferred.cancel()
            raise CancelledError
        self._awaited = deferred
        try:
            return await deferred
        finally:
            self._awaited = None

    def _connect(self) -> Deferred[Connection]:
        endpoint = self._dependencies.endpoint_of(self.leader_id)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the address of the broker is not known yet")
        return Deferred.fromCoroutine(self._open(endpoint))

    async def _open(self, endpoint: Endpoint) -> Connection:
        connection = await connect(
            self._reactor,
            endpoint.host,
            endpoint.port,
            client_id=f"replica-{self._dependencies.broker_id}",
            frame_size_max=self._config.frame_bytes_max,
            connect_timeout_s=self._config.timeout_s,
            receive_buffer_bytes=self._config.receive_buffer_bytes,
            endpoint=self._config.endpoint,
        )
        connection.send_at_once()
        try:
            await connection.negotiate()
            if connection.version(FETCH) < DIVERGENCE_FROM:
                raise UnsupportedVersion(f"broker {self.leader_id} does not support Fetch version {DIVERGENCE_FROM}")
        except Exception:
            connection.close()
            raise
        return connection

    async def _exchange(self, connection: Connection) -> None:
        """Send fetches and process responses until the connection ends."""
        while not self._closed:
            if not self._sent:
                if not len(self._session):
                    self._idle = Deferred()
                    await self._wait(self._idle)
                    continue
                self._send()
            sent = self._sent[0]
            response = await self._wait(sent.response)
            self._sent.popleft()
            await self._process_response(connection, sent, response)

    def _send(self) -> None:
        connection = self._connection
        if connection is None:
            return
        broker_epoch = self._dependencies.broker_epoch()
        if broker_epoch != self._broker_epoch:
            self._broker_epoch = broker_epoch
            self._session.reset()  # the leader identifies the follower by its broker epoch
        version = self._session.version(self._version)
        body = self._requests.build(version, broker_epoch, self._session.next_request(version))
        response = connection.request(FETCH, version, body, timeout_s=self._timeout_s)
        self._sent.append(_Sent(response, self._session.number, self._session.generation))

    async def _back_off(self, error: Exception) -> None:
        """Disconnect, reset the session and wait before the next attempt."""
        self._failures += 1
        self.problem = str(error)
        if not self._closed:
            write_log = log.warn if self._failures == 1 else log.debug
            write_log(
                "fetching from broker {leader} failed, trying again: {error}", leader=self.leader_id, error=str(error)
            )
        self._discard_sent()
        self._session.reset()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        delay_s = self._config.backoff_s(self._failures) * self._dependencies.runtime.random.uniform(0.5, 1.0)
        await self._wait(pause(self._reactor, delay_s))

    def _discard_sent(self) -> None:
        for sent in self._sent:
            sent.response.addErrback(lambda _: None)
        self._sent.clear()

    # --- responses ---------------------------------------------------------------------------------------------------

    async def _process_response(self, connection: Connection, sent: _Sent, response: Row) -> None:
        if sent.generation != self._session.generation:
            return  # the session was reset in the meantime
        if response["error_code"]:
            self._handle_error(ErrorCode.of(response["error_code"]))
            return
        if self._failures:
            self.problem = ""
            log.info("fetching from broker {leader} works again", leader=self.leader_id)
        self._failures = self._rejected_sessions = 0
        self._session.response_received(response["session_id"])
        out_of_range: list[FollowerState] = []
        rows = self._rows(response)
        time_slice = TimeSlice(self._reactor) if len(rows) > 1 else None
        for state, row in rows:
            if self._states.get(state.key) is not state or not state.accepts_response_to(sent.number):
                continue
            step = self._process_row(state, row)
            if step is NextStep.FIND_RANGE:
                out_of_range.append(state)
            elif self._states.get(state.key) is state:
                self._proceed(state, step)
            if time_slice is not None and time_slice.is_over:
                await self._wait(time_slice.next())
        if out_of_range:
            await self._find_ranges(connection, out_of_range)

    def _rows(self, response: Row) -> list[tuple[FollowerState, Row]]:
        """Return the rows of followed partitions with their states."""
        found = []
        for topic in response["responses"]:
            name = topic.get("topic")
            for row in topic["partitions"]:
                if name is None:
                    state = self._by_id.get((topic["topic_id"], row["partition_index"]))
                else:
                    state = self._states.get(TopicPartition(name, row["partition_index"]))
                if state is not None:
                    found.append((state, row))
        return found

    def _throttles_of(self, state: FollowerState) -> Sequence[TokenBucket]:
        throttle = self._dependencies.throttle
        if throttle is None or state.in_sync:
            return ()
        return throttle.follower_throttles(state.key, state.partition.leadership.adding)

    def _process_row(self, state: FollowerState, row: Row) -> NextStep:
        if row["records"]:
            for bucket in self._throttles_of(state):
                bucket.use(len(row["records"]))
        return state.process_row(row, self._dependencies.runtime.wall_clock_ms())

    def _handle_error(self, code: ErrorCode) -> None:
        if code not in _SESSION_ERRORS or self._rejected_sessions >= REJECTED_SESSIONS_MAX:
            self._rejected_sessions = 0
            raise KafkaError(code, "the leader rejected the fetch")
        self._rejected_sessions += 1
        self._session.reset(is_unknown_to_leader=code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    async def _find_ranges(self, connection: Connection, states: list[FollowerState]) -> None:
        """Reset the fetch offset of partitions whose position is outside the leader's log."""
        request = find_ranges(
            connection, states, broker_id=self._dependencies.broker_id, timeout_s=self._config.timeout_s
        )
        ranges: Ranges = await self._wait(Deferred.fromCoroutine(request))
        for state in states:
            if self._states.get(state.key) is state:
                self._proceed(state, state.restart(*ranges.get(state.key, (None, None))))
