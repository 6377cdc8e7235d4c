"""Transaction coordinators on a log and on partitions whose responses tests control step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, cast

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from kreplica.client.errors import ConnectionFailed, ConnectionLost
from kreplica.coordination import BrokerConnections, ClusterView, Pair, Shards, StateLog
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.transactions import (
    EndRequest,
    Identity,
    InitRequest,
    Markers,
    MarkersConfig,
    ProducerResponse,
    Transaction,
    TransactionCoordinator,
    TransactionsConfig,
)
from kreplica.transactions.shard import TransactionShard
from kreplica.transactions.states import NO_IDENTITY
from kreplica.wire.batch_building import BatchBuilder
from kreplica.wire.batches import BatchHeader, parse_header
from kreplica.wire.messages import WRITE_TXN_MARKERS, Api

WALL_CLOCK_START_MS = 1_700_000_000_000
ID = "tx"
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
OFFSETS = TopicPartition("__consumer_offsets", 7)
E = ErrorCode


class SteppedLog:
    """``StateLog`` whose appends are committed, rejected or timed out by the test."""

    def __init__(self, committed: list[Pair], epoch: int) -> None:
        self.partition = 0
        self.epoch = epoch
        self.records = committed
        self.waiting: deque[tuple[Sequence[Pair], Callable[[], None], Callable[[ErrorCode], None]]] = deque()
        self.rejects: ErrorCode | None = None
        self.rejected: list[Callable[[ErrorCode], None]] = []

    def append(
        self, records: Sequence[Pair], committed: Callable[[], None], answer: Callable[[ErrorCode], None]
    ) -> None:
        if self.rejects is not None:
            self.rejected.append(answer)
        else:
            self.waiting.append((records, committed, answer))

    def commit(self, count: int | None = None) -> None:
        """Commit the first ``count`` pending appends, by default all, including those appended meanwhile."""
        done = 0
        while self.waiting and (count is None or done < count):
            records, committed, answer = self.waiting.popleft()
            self.records.extend(records)
            committed()
            answer(ErrorCode.NONE)
            done += 1

    def reject(self) -> None:
        """Answer all rejected appends with an error."""
        code = self.rejects or ErrorCode.COORDINATOR_NOT_AVAILABLE
        rejected, self.rejected = self.rejected, []
        for answer in rejected:
            answer(code)

    def time_out(self) -> None:
        """Let pending appends time out; they may be committed later."""
        for index, (records, committed, answer) in enumerate(self.waiting):
            answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.waiting[index] = (records, committed, _ignore)

    def lose(self, *, survives: bool) -> None:
        """Make another broker the leader.

        :param survives: True if the new leader has the pending appends in its log.
        """
        for records, _, answer in self.waiting:
            if survives:
                self.records.extend(records)
            answer(ErrorCode.NOT_COORDINATOR)
        self.waiting.clear()


def _ignore(code: ErrorCode) -> None:
    pass


class Marker(NamedTuple):
    """A marker in the log of a partition."""

    producer_id: int
    epoch: int
    commits: bool
    coordinator_epoch: int


@dataclass
class Cluster:
    """``ClusterView`` and ``BrokerConnections`` with partitions that accept markers.

    :ivar leaders: leader of each existing partition, or None if it has none.
    :ivar moved: partitions that respond NOT_LEADER_OR_FOLLOWER once, from any leader.
    :ivar answers: error code of each partition that refuses markers.
    :ivar holds_requests: True if requests wait for ``release``.
    """

    leaders: dict[TopicPartition, int | None] = field(default_factory=lambda: {P0: 1, P1: 2, P2: 2, OFFSETS: 1})
    markers: dict[TopicPartition, list[Marker]] = field(default_factory=dict)
    moved: dict[TopicPartition, int] = field(default_factory=dict)
    answers: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    down: dict[int, bool] = field(default_factory=dict)
    has_metadata: bool = True
    holds_requests: bool = False
    held_requests: list[tuple[int, dict[str, Any], Deferred[dict[str, Any]]]] = field(default_factory=list)
    requests: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    # --- interface of a ClusterView ---

    def partition_count(self, topic: str) -> int | None:
        if not self.has_metadata:
            return None
        if topic == "__transaction_state":
            return 1
        numbers = [key.partition for key in self.leaders if key.topic == topic]
        return max(numbers) + 1 if numbers else None

    def leader_of(self, key: TopicPartition) -> int | None:
        return self.leaders.get(key) if self.has_metadata else None

    # --- interface of BrokerConnections ---

    def request(self, broker_id: int, api: Api, body: dict[str, Any], *, timeout_s: float) -> Deferred[dict[str, Any]]:
        assert api is WRITE_TXN_MARKERS
        body = api.request.parse(2, api.request.build(2, body))
        self.requests.append((broker_id, body))
        if self.down.get(broker_id):
            return fail(ConnectionFailed(f"broker {broker_id} is down"))
        waiting: Deferred[dict[str, Any]] = Deferred()
        self.held_requests.append((broker_id, body, waiting))
        if not self.holds_requests:
            self.release()
        return waiting

    def release(self, count: int | None = None, *, lose_response: bool = False) -> None:
        """Deliver the held requests, and their responses unless ``lose_response`` is set."""
        requests, self.held_requests = (
            self.held_requests[:count],
            self.held_requests[count:] if count is not None else [],
        )
        for _, body, waiting in requests:
            answer = {"markers": [self._write(marker) for marker in body["markers"]]}
            if lose_response:
                waiting.errback(ConnectionLost("the response is lost"))
            elif not waiting.called:
                waiting.callback(answer)

    def _write(self, row: dict[str, Any]) -> dict[str, Any]:
        marker = Marker(row["producer_id"], row["producer_epoch"], row["transaction_result"], row["coordinator_epoch"])
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": number,
                        "error_code": int(self._append(TopicPartition(topic["name"], number), marker)),
                    }
                    for number in topic["partition_indexes"]
                ],
            }
            for topic in row["topics"]
        ]
        return {"producer_id": row["producer_id"], "topics": topics}

    def _append(self, key: TopicPartition, marker: Marker) -> ErrorCode:
        if self.moved.pop(key, None) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if key in self.answers:
            return self.answers[key]
        written = self.markers.setdefault(key, [])
        if any(other.coordinator_epoch > marker.coordinator_epoch for other in written):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        written.append(marker)
        return ErrorCode.NONE

    def decisions(self) -> dict[tuple[int, int], set[bool]]:
        """Return the outcomes of markers by producer ID and epoch."""
        found: dict[tuple[int, int], set[bool]] = {}
        for written in self.markers.values():
            for marker in written:
                found.setdefault((marker.producer_id, marker.epoch), set()).add(marker.commits)
        return found


class OneShard:
    """``Shards`` with one partition."""

    def __init__(self, shard: TransactionShard) -> None:
        self.shard = shard
        self.error: ErrorCode | None = None

    def current_shard_of(self, name: str) -> TransactionShard:
        if self.error is not None:
            raise KafkaError(self.error)
        return self.shard

    def loaded_shards(self) -> list[TransactionShard]:
        return [] if self.error is not None else [self.shard]

    @property
    def is_loading(self) -> bool:
        return self.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Scene:
    """Successive coordinators on one log; responses are recorded in order."""

    def __init__(self, config: TransactionsConfig | None = None, markers: MarkersConfig | None = None) -> None:
        self.clock = Clock()
        self.config = config or TransactionsConfig(is_two_phase_enabled=True)
        self.cluster = Cluster()
        self.records: list[Pair] = []
        self.answers: list[ProducerResponse] = []
        self.next_producer_id = 1000
        self.pending_ids: list[Deferred[int]] = []
        self.holds_ids = False
        self.jump_ms = 0
        self._markers_config = markers or MarkersConfig()
        self._epoch = -1
        self.take_over()

    # --- coordinators ------------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Start a coordinator that loads the log."""
        self._epoch += 1
        self.log = SteppedLog(self.records, self._epoch)
        reactor = cast(Any, self.clock)
        self.runtime = Runtime(reactor, cast(Any, None), cast(Any, None), Random(1), self.wall_clock_ms)
        self.markers = Markers(
            reactor, cast(ClusterView, self.cluster), cast(BrokerConnections, self.cluster), self._markers_config
        )

        def make_shards(make: Callable[[StateLog], TransactionShard]) -> Shards[TransactionShard]:
            self.shards = OneShard(make(cast(StateLog, self.log)))
            return cast(Shards[TransactionShard], self.shards)

        self.coordinator = TransactionCoordinator(self.runtime, make_shards, self.markers, self._new_id, self.config)
        self.shard = self.shards.shard
        for key, value in list(self.records):
            self.shard.replay(key, value, header_of(key, value))
        self.shard.loaded()
        self.coordinator.start()

    def fail_over(self, *, survives: bool = False) -> None:
        """Replace the coordinator.

        :param survives: True if uncommitted appends are in the log that the next coordinator loads.
        """
        self.shards.error = ErrorCode.NOT_COORDINATOR
        self.shard.unload()
        self.log.lose(survives=survives)
        self.coordinator.stop()
        self.take_over()

    def stop(self) -> None:
        """Stop the coordinator and check that no timer is left."""
        self.coordinator.stop()
        assert not self.clock.getDelayedCalls(), self.clock.getDelayedCalls()

    def wall_clock_ms(self) -> int:
        return WALL_CLOCK_START_MS + int(self.clock.seconds() * 1000) + self.jump_ms

    async def _new_id(self) -> int:
        if self.holds_ids:
            waiting: Deferred[int] = Deferred()
            self.pending_ids.append(waiting)
            return await waiting
        return self._next_id()

    def _next_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def release_ids(self) -> None:
        waiting, self.pending_ids = self.pending_ids, []
        for each in waiting:
            each.callback(self._next_id())

    # --- time --------------------------------------------------------------------------------------------------------

    def settle(self, seconds: float = 0.0) -> None:
        """Commit all appends while advancing time."""
        for _ in range(20):
            self.log.commit()
            self.clock.advance(0)
        end_s = self.clock.seconds() + seconds
        while self.clock.seconds() < end_s:
            due = min([call.getTime() for call in self.clock.getDelayedCalls()] + [end_s])
            self.clock.advance(max(min(due, end_s) - self.clock.seconds(), 0.0001))
            self.log.commit()

    # --- requests ----------------------------------------------------------------------------------------------------

    def send_begin(self, claimed: Identity = NO_IDENTITY, timeout_ms: int = 60_000, **more: bool) -> None:
        self.coordinator.begin(ID, InitRequest(timeout_ms, claimed, **more), self.answers.append)

    def send_add(self, claimed: Identity, *keys: TopicPartition) -> None:
        self.coordinator.add(ID, claimed, keys, lambda code: self.answers.append(ProducerResponse(code)))

    def send_end(self, claimed: Identity, *, commits: bool, grows: bool = False) -> None:
        self.coordinator.end(ID, EndRequest(claimed, commits, grows), self.answers.append)

    def begin(self, claimed: Identity = NO_IDENTITY, **more: Any) -> Identity:
        """Send InitProducerId until it succeeds; return the producer's identity."""
        answer = self._retry(lambda: self.send_begin(claimed, **more))
        assert answer.code is ErrorCode.NONE, answer
        return answer.identity

    def add(self, claimed: Identity, *keys: TopicPartition) -> ErrorCode:
        return self._retry(lambda: self.send_add(claimed, *keys)).code

    def end(self, claimed: Identity, *, commits: bool, grows: bool = False) -> ProducerResponse:
        answer = self._retry(lambda: self.send_end(claimed, commits=commits, grows=grows))
        self.settle()
        return answer

    def _retry(self, send: Callable[[], None]) -> ProducerResponse:
        for _ in range(100):
            answer = self.response_to(send)
            if answer.code not in (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_NOT_AVAILABLE):
                return answer
            self.settle(0.2)
        raise AssertionError(f"always {answer}")

    def response_to(self, send: Callable[[], None]) -> ProducerResponse:
        """Return the response to one request once all appends are committed."""
        before = len(self.answers)
        send()
        self.settle()
        (answer,) = self.answers[before:]
        return answer

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def transaction(self) -> Transaction:
        return self.coordinator.describe(ID)

    @property
    def state(self) -> str:
        return self.transaction.state.title

    def markers_in(self, key: TopicPartition) -> list[bool]:
        """Return the outcomes of the markers in a partition, in order."""
        return [marker.commits for marker in self.cluster.markers.get(key, [])]


def header_of(key: bytes, value: bytes | None) -> BatchHeader:
    builder = BatchBuilder()
    builder.append(0, key, value)
    return parse_header(builder.build())


def transaction(**changes: Any) -> Transaction:
    """Return a transaction with default values for all other fields."""
    defaults: dict[str, Any] = {"transactional_id": ID, "producer_id": 7, "producer_epoch": 3, "timeout_ms": 60_000}
    partitions: Collection[TopicPartition] = changes.pop("partitions", ())
    return Transaction(**{**defaults, "partitions": frozenset(partitions), **changes})
