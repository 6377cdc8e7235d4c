"""Follows one leader: one connection, one fetch under way for all partitions, and what the answers say taken in.

Nothing that happens to one partition holds up another: what fails is left out of the fetches for a while, what may not
be acknowledged yet is left out until it may.
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
from kreplica.replication.follower.follower_state import Followed, Next
from kreplica.replication.follower.leader_range import Ranges, find_ranges
from kreplica.replication.partition import Partition
from kreplica.replication.retries import Retries
from kreplica.replication.throttle import ReplicationThrottle, TokenBucket
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.runtime.turns import Turns
from kreplica.wire.messages import FETCH

log = Logger()

DIVERGENCE_FROM = 12
"""The first version of Fetch in which a leader says where a follower's history leaves its own (KIP-595)."""

UNDER_WAY_MAX = 2
"""One fetch, and one more where there is news for a leader that holds the first until it has data."""

REFUSED_SESSIONS_MAX = 3
"""A leader that refuses its own sessions so often in a row is left alone for a while."""

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
class Follower:
    """What all fetchers of one broker have in common; see ``Fetchers``."""

    runtime: Runtime
    broker_id: int
    broker_epoch: Callable[[], int]
    endpoint_of: Callable[[int], Endpoint | None]
    config: FetcherConfig
    throttle: ReplicationThrottle | None


class _Sent(NamedTuple):
    """A fetch under way."""

    answer: Deferred[Row]
    number: int
    generation: int


THROTTLE_LOOK_SECONDS = 1.0
"""So long a throttled partition waits before the rate is looked at again, however much there is to wait for."""


class Fetcher:
    """Begins with its first partition; connects, and connects again, for as long as it has any.

    :param leader_id: the broker that is followed, wherever it listens.
    """

    def __init__(self, follower: Follower, leader_id: int) -> None:
        self.leader_id = leader_id
        self._follower = follower
        self._config = follower.config
        self._timeout_s = follower.config.timeout_s + follower.config.wait_ms_max / 1000
        self._reactor = follower.runtime.reactor
        self._session: FetchSession[Followed] = FetchSession()
        self._requests = FetchRequests(follower.broker_id, follower.config)
        self._followed: dict[TopicPartition, Followed] = {}
        self._by_id: dict[tuple[UUID, int], Followed] = {}
        self._later = Retries(self._reactor, self._ask_those_due)
        self._news_call: IDelayedCall | None = None
        self._connection: Connection | None = None
        self._version = DIVERGENCE_FROM
        self._sent: deque[_Sent] = deque()
        self._running: Deferred[None] | None = None
        self._awaited: Deferred[Any] | None = None
        self._idle: Deferred[None] | None = None
        self._broker_epoch = NO_BROKER_EPOCH
        self._failures = 0
        self._refused_sessions = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._followed)

    # --- partitions --------------------------------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Fetch a partition from now on; one that was fetched in an earlier epoch is another now."""
        self.remove(partition.topic_partition)
        followed = Followed(partition, self._config.partition_bytes_max)
        self._followed[followed.key] = followed
        if followed.topic_id != ZERO_UUID:
            self._by_id[followed.topic_id, followed.key.partition] = followed
        self._go_on(followed, Next.ASK if followed.begin() else Next.LATER)
        if self._running is None and not self._closed:
            self._running = Deferred.fromCoroutine(self._run())
            self._running.addErrback(lambda failure: log.failure("following broker {b}", failure, b=self.leader_id))

    def remove(self, key: TopicPartition) -> None:
        """Fetch a partition no more: what is under way for it is thrown away."""
        followed = self._followed.pop(key, None)
        if followed is not None:
            self._by_id.pop((followed.topic_id, key.partition), None)
            self._session.leave_out(key)
            self._requests.forget(key)
            followed.partition.waiting.pop(self, None)

    def changed(self, partitions: set[Partition]) -> None:
        """Partitions were synced: what they have may be acknowledged now, by fetching what follows."""
        for partition in sorted(partitions, key=lambda p: p.topic_partition):
            followed = self._followed.get(partition.topic_partition)
            if self in partition.waiting and followed is not None and followed.may_acknowledge:
                del partition.waiting[self]
                self._ask(followed)

    def close(self) -> Deferred[None]:
        """Take in nothing more, and close the connection; fires when it is gone."""
        self._closed = True
        for key in list(self._followed):
            self.remove(key)
        self._later.clear()
        if self._news_call is not None:
            self._news_call.cancel()
            self._news_call = None
        if self._awaited is not None:
            self._awaited.cancel()
        connection, self._connection = self._connection, None
        return connection.close() if connection is not None else succeed(None)

    # --- what is asked for -------------------------------------------------------------------------------------------

    def _go_on(self, followed: Followed, what: Next) -> None:
        """Do what one partition needs next."""
        if what is Next.ASK:
            if followed.may_acknowledge:
                self._ask(followed)
            else:
                # The next fetch says that all before it is safe here.
                self._session.leave_out(followed.key)
                followed.partition.waiting[self] = None
        elif what is Next.LATER:
            self._ask_later(followed, self._config.backoff_s(followed.failures))

    def _ask(self, followed: Followed) -> None:
        throttles = self._throttles_of(followed)
        if throttles and (wait_s := max(bucket.seconds_until_free for bucket in throttles)) > 0:
            # The rate may be raised meanwhile, or be gone with the plan that asked for it.
            self._ask_later(followed, min(wait_s, THROTTLE_LOOK_SECONDS))
            return
        self._session.ask(followed)
        # Where no fetch is under way, and nobody is idle, the next one is about to leave with the news.
        if self._news_call is None and (self._sent or self._idle is not None):
            self._news_call = self._reactor.callLater(0, self._tell_news)

    def _ask_later(self, followed: Followed, delay_s: float) -> None:
        self._session.leave_out(followed.key)
        self._later.add(followed, delay_s)

    def _ask_those_due(self, due: list[Followed]) -> None:
        for followed in due:
            if self._followed.get(followed.key) is followed:
                self._go_on(followed, Next.ASK)

    def _tell_news(self) -> None:
        """Something is to be asked for that the leader does not know of: it must not wait for the fetch under way.

        A leader of ours answers the fetch that it holds when the next one of the session comes in.
        """
        self._news_call = None
        if self._idle is not None:
            idle, self._idle = self._idle, None
            idle.callback(None)
        elif self._session.has_news and self._session.established and 0 < len(self._sent) < UNDER_WAY_MAX:
            self._send()

    # --- the conversation --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while not self._closed:
                try:
                    connection = self._connection = await self._wait(self._connect())
                    self._version = connection.version(FETCH)
                    await self._converse(connection)
                except CancelledError:
                    raise
                except Exception as error:
                    if not isinstance(error, ClientError | KafkaError | ProtocolError):
                        # Whatever it is, those that are followed must not be forgotten.
                        log.failure("following broker {leader} failed", leader=self.leader_id)
                    await self._back_off(error)
        except CancelledError:
            if not self._closed:
                raise
        finally:
            self._forget_sent()
            self._running = None

    async def _wait(self, deferred: Deferred[Any]) -> Any:
        """Await something that ``close`` has to end."""
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
        endpoint = self._follower.endpoint_of(self.leader_id)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "where it listens is not known yet")
        return Deferred.fromCoroutine(self._open(endpoint))

    async def _open(self, endpoint: Endpoint) -> Connection:
        connection = await connect(
            self._reactor,
            endpoint.host,
            endpoint.port,
            client_id=f"replica-{self._follower.broker_id}",
            frame_size_max=self._config.frame_bytes_max,
            connect_timeout_s=self._config.timeout_s,
            receive_buffer_bytes=self._config.receive_buffer_bytes,
        )
        try:
            await connection.negotiate()
            if connection.version(FETCH) < DIVERGENCE_FROM:
                raise UnsupportedVersion(f"broker {self.leader_id} speaks no Fetch of version {DIVERGENCE_FROM}")
        except Exception:
            connection.close()
            raise
        return connection

    async def _converse(self, connection: Connection) -> None:
        """Fetch, answer after answer, until the connection ends."""
        while not self._closed:
            if not self._sent:
                if not len(self._session):
                    self._idle = Deferred()
                    await self._wait(self._idle)
                    continue
                self._send()
            sent = self._sent[0]
            answer = await self._wait(sent.answer)
            self._sent.popleft()
            await self._take_in(connection, sent, answer)

    def _send(self) -> None:
        connection = self._connection
        if connection is None:
            return
        broker_epoch = self._follower.broker_epoch()
        if broker_epoch != self._broker_epoch:
            self._broker_epoch = broker_epoch
            self._session.reset()  # the leader knows each partition's follower by it
        version = self._session.version(self._version)
        body = self._requests.build(version, broker_epoch, self._session.next_request(version))
        answer = connection.request(FETCH, version, body, timeout_s=self._timeout_s)
        self._sent.append(_Sent(answer, self._session.number, self._session.generation))

    async def _back_off(self, error: Exception) -> None:
        """The leader cannot be reached, or refuses: everything begins anew, in a while."""
        self._failures += 1
        if not self._closed:
            tell = log.warn if self._failures == 1 else log.debug
            tell(
                "fetching from broker {leader} failed, trying again: {error}", leader=self.leader_id, error=str(error)
            )
        self._forget_sent()
        self._session.reset()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        delay_s = self._config.backoff_s(self._failures) * self._follower.runtime.random.uniform(0.5, 1.0)
        await self._wait(pause(self._reactor, delay_s))

    def _forget_sent(self) -> None:
        for sent in self._sent:
            sent.answer.addErrback(lambda _: None)
        self._sent.clear()

    # --- answers -----------------------------------------------------------------------------------------------------

    async def _take_in(self, connection: Connection, sent: _Sent, answer: Row) -> None:
        if sent.generation != self._session.generation:
            return  # of a session that was given up meanwhile
        if answer["error_code"]:
            self._refused(ErrorCode.of(answer["error_code"]))
            return
        if self._failures:
            log.info("fetching from broker {leader} works again", leader=self.leader_id)
        self._failures = self._refused_sessions = 0
        self._session.answered(answer["session_id"])
        out_of_range: list[Followed] = []
        rows = self._rows(answer)
        turns = Turns(self._reactor) if len(rows) > 1 else None
        for followed, row in rows:
            if self._followed.get(followed.key) is not followed or not followed.is_answered_by(sent.number):
                continue
            what = self._take_in_row(followed, row)
            if what is Next.FIND_RANGE:
                out_of_range.append(followed)
            elif self._followed.get(followed.key) is followed:
                self._go_on(followed, what)
            if turns is not None and turns.is_over:
                await self._wait(turns.next())
        if out_of_range:
            await self._find_ranges(connection, out_of_range)

    def _rows(self, answer: Row) -> list[tuple[Followed, Row]]:
        """The rows of an answer with the partitions that they are about, as far as those are followed."""
        found = []
        for topic in answer["responses"]:
            name = topic.get("topic")
            for row in topic["partitions"]:
                if name is None:
                    followed = self._by_id.get((topic["topic_id"], row["partition_index"]))
                else:
                    followed = self._followed.get(TopicPartition(name, row["partition_index"]))
                if followed is not None:
                    found.append((followed, row))
        return found

    def _throttles_of(self, followed: Followed) -> Sequence[TokenBucket]:
        throttle = self._follower.throttle
        if throttle is None or followed.in_sync:
            return ()
        return throttle.following(followed.key, followed.partition.leadership.adding)

    def _take_in_row(self, followed: Followed, row: Row) -> Next:
        if row["records"]:
            for bucket in self._throttles_of(followed):
                bucket.use(len(row["records"]))
        return followed.take_in(row, self._follower.runtime.wall_clock_ms())

    def _refused(self, code: ErrorCode) -> None:
        if code not in _SESSION_ERRORS or self._refused_sessions >= REFUSED_SESSIONS_MAX:
            self._refused_sessions = 0
            raise KafkaError(code, "the leader refuses the fetch")
        self._refused_sessions += 1
        self._session.reset(gone=code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    async def _find_ranges(self, connection: Connection, followed: list[Followed]) -> None:
        """Those whose position the leader does not have go on where it has something."""
        asking = find_ranges(
            connection, followed, broker_id=self._follower.broker_id, timeout_s=self._config.timeout_s
        )
        ranges: Ranges = await self._wait(Deferred.fromCoroutine(asking))
        for one in followed:
            if self._followed.get(one.key) is one:
                self._go_on(one, one.restart(*ranges.get(one.key, (None, None))))
