"""Batches on their way: requests to leaders, answers, and what a retry may do.  The rule of retries is in ``lanes``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from kreplica.blocking.cluster import Cluster
from kreplica.blocking.connection import Connection, Pending
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.sansio.addresses import Address
from kreplica.sansio.backoff import backoff_s
from kreplica.sansio.delivery import UNKNOWN_OFFSET
from kreplica.sansio.errors import BrokerRefused, ClientError, MalformedAnswer, OutcomeUnknown
from kreplica.sansio.lanes import Lane, OutgoingBatch, ProducerIdentity
from kreplica.wire.messages import PRODUCE

REQUESTS_MAX = 5
"""Under way on one connection."""

REQUEST_SIZE_MAX = 8 << 20
"""Bytes of batches in one request; a larger batch goes alone."""

ADDED_BY_CLIENT_MAX = 11
"""From the next version of Produce on, brokers take partitions into transactions by themselves (KIP-890)."""

WAIT_S_MAX = 1.0

_WRONG_NUMBERS = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


@dataclass(frozen=True, slots=True)
class SendingRules:
    """What a sender has to know of its producer.

    :param acks: -1, 0 or 1.
    :param identity: gives the producer's id and epoch, asking for them at first; None where batches have no numbers.
    :param join: is told of partitions before anything is sent to them, as transactions want it.
    :param settled: is told of each batch whose outcome is set.
    :param broken: why nothing more may be sent, as in a transaction of which a part is missing; None as a rule.
    """

    acks: int
    transactional_id: str | None
    identity: Callable[[], ProducerIdentity] | None
    renew_producer_id: Callable[[], None]
    join: Callable[[Iterable[TopicPartition]], None]
    settled: Callable[[OutgoingBatch], None]
    broken: Callable[[], ClientError | None]


class _Passenger(NamedTuple):
    lane: Lane
    batch: OutgoingBatch


class _Request(NamedTuple):
    sent: Pending
    passengers: list[_Passenger]


class Sender:
    """Moves batches between their lanes and the leaders; owned and driven by a producer."""

    def __init__(self, cluster: Cluster, rules: SendingRules) -> None:
        self._cluster = cluster
        self._rules = rules
        self._surroundings = cluster.surroundings
        self._connections = cluster.new_connections()
        self._requests: dict[Connection, deque[_Request]] = {}
        self._active: dict[TopicPartition, Lane] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no closed batch is without an outcome."""
        return not self._active

    @property
    def in_flight(self) -> bool:
        """Whether an answer is waited for."""
        return bool(self._requests)

    def add(self, lane: Lane) -> None:
        """A lane has a closed batch."""
        self._active[lane.partition] = lane

    def step(self, timeout_s: float = 0.0) -> None:
        """Send what can be sent, and take the answers that come; waits at most so long where there is nothing to do."""
        self._expire()
        broken = self._rules.broken()
        if broken is not None:
            self._drop_waiting(broken)
        while self._send_ready():
            pass
        self._receive(timeout_s)
        for partition in [each for each, lane in self._active.items() if not lane.waiting and not lane.in_flight]:
            del self._active[partition]

    def drop(self, error: ClientError) -> bool:
        """Give up all that waits, as if it never was; what is under way is waited for.

        :return: whether some of it may have been written.
        """
        doubtful = False
        while self._active:
            doubtful = self._drop_waiting(error) or doubtful
            self._active = {each: lane for each, lane in self._active.items() if lane.in_flight}
            if self._requests:
                self._receive(WAIT_S_MAX)
            else:
                doubtful = self._forget_in_flight(error) or doubtful
        return doubtful

    def _forget_in_flight(self, error: ClientError) -> bool:
        """What an interrupt left under way without a request that would be answered.

        :return: whether there was any.
        """
        forgotten = [(lane, batch) for lane in self._active.values() for batch in lane.in_flight]
        for lane, batch in forgotten:
            lane.answered(batch)
            lane.must_restart = True
            self._settle(batch, error)
        self._active.clear()
        return bool(forgotten)

    def _drop_waiting(self, error: ClientError) -> bool:
        """:return: whether some of it had its numbers already."""
        numbered = False
        for lane in self._active.values():
            while lane.waiting:
                batch = lane.waiting.popleft()
                numbered = numbered or batch.sequence >= 0
                lane.must_restart = lane.must_restart or batch.sequence >= 0
                self._settle(batch, error)
        return numbered

    def close(self) -> None:
        """Close the connections; what is under way stays without an outcome."""
        self._requests.clear()
        self._connections.close()

    # --- sending ---

    def _send_ready(self) -> bool:
        """Send one request to each leader that something waits for; whether there was any."""
        now_s = self._surroundings.clock()
        wanted: dict[Address, list[_Passenger]] = {}
        for lane in self._active.values():
            for stranded in lane.stranded():
                lane.waiting.remove(stranded)
                self._give_up(lane, stranded, ClientError(f"{lane.partition}: a batch before it was refused"))
            batch = lane.sendable(now_s)
            if batch is None:
                continue
            try:
                address = self._cluster.address(self._cluster.leader(lane.partition))
            except ClientError as error:
                self._hold(lane, batch, error)
            else:
                wanted.setdefault(address, []).append(_Passenger(lane, batch))
        sent = [self._send_to(address, passengers) for address, passengers in wanted.items()]
        return any(sent)

    def _hold(self, lane: Lane, batch: OutgoingBatch, error: ClientError) -> None:
        """A batch cannot be sent at the moment."""
        if error.retriable:
            lane.hindrance = error
            lane.retry_at_s = self._retry_at_s(lane)
        else:
            lane.waiting.remove(batch)
            self._give_up(lane, batch, error)

    def _send_to(self, address: Address, passengers: list[_Passenger]) -> bool:
        try:
            connection = self._connections.to(address)
            if connection.pending >= REQUESTS_MAX or connection.silence_s:
                return False
            version = connection.version(PRODUCE, ADDED_BY_CLIENT_MAX)
            aboard = self._board(passengers)
        except ClientError as error:
            self._cluster.doubt()
            for lane, batch in passengers:
                self._hold(lane, batch, error)
            return False
        self._send(connection, version, aboard)
        return True

    def _board(self, passengers: list[_Passenger]) -> list[_Passenger]:
        """Those that one request holds, with their numbers."""
        aboard: list[_Passenger] = []
        size = 0
        for passenger in passengers:
            size += len(passenger.batch.data)
            if aboard and size > REQUEST_SIZE_MAX:
                break
            aboard.append(passenger)
        self._rules.join(lane.partition for lane, _ in aboard)
        if self._rules.identity is not None:
            for lane, batch in aboard:
                if lane.needs_producer_id():
                    self._rules.renew_producer_id()
                lane.number(batch, self._rules.identity())
        return aboard

    def _send(self, connection: Connection, version: int, passengers: list[_Passenger]) -> None:
        answered = self._rules.acks != 0
        timeout_s = self._cluster.options.request_timeout_s
        body = self._body(passengers, int(timeout_s * 1000))
        for lane, batch in passengers:
            lane.sent(batch)
        try:
            # The broker has its own time-out, after which it answers so: this side waits a little longer.
            sent = connection.send(PRODUCE, body, version=version, timeout_s=2 * timeout_s, answered=answered)
        except KeyboardInterrupt:
            connection.close()  # part of a request may have gone
            raise
        except ClientError as error:
            self._lost(connection, error)
            self._failed_all(passengers, error)
            return
        if answered:
            self._requests.setdefault(connection, deque()).append(_Request(sent, passengers))
            return
        for lane, batch in passengers:
            lane.answered(batch)
            self._settle(batch, None)

    def _body(self, passengers: list[_Passenger], timeout_ms: int) -> dict[str, Any]:
        rows = sorted(passengers, key=lambda each: each.lane.partition)
        return {
            "transactional_id": self._rules.transactional_id,
            "acks": self._rules.acks,
            "timeout_ms": timeout_ms,
            "topic_data": [
                {
                    "name": topic,
                    "partition_data": [
                        {"index": lane.partition.partition, "records": batch.data} for lane, batch in group
                    ],
                }
                for topic, group in groupby(rows, key=lambda each: each.lane.partition.topic)
            ],
        }

    # --- answers ---

    def _receive(self, timeout_s: float) -> None:
        wait_s = min(timeout_s, self._idle_s())
        if not self._requests:
            if wait_s > 0 and self._active:
                self._surroundings.sleep(wait_s)
            return
        by_socket = {connection.socket: connection for connection in self._requests}
        for ready in self._surroundings.wait_readable(list(by_socket), wait_s):
            self._receive_from(by_socket[ready])
        for connection in list(self._requests):
            try:
                connection.check_time()
            except ClientError as error:
                self._lost(connection, error)

    def _idle_s(self) -> float:
        """Until a batch may be tried again, a broker be written to again, or something is late; at most a second."""
        now_s = self._surroundings.clock()
        times = [lane.retry_at_s for lane in self._active.values() if lane.waiting and lane.retry_at_s > now_s]
        times += [connection.deadline_s or now_s for connection in self._requests]
        times += [now_s + each.silence_s for each in self._connections if each.silence_s]
        return max(0.0, min(WAIT_S_MAX, *(time_s - now_s for time_s in times))) if times else WAIT_S_MAX

    def _receive_from(self, connection: Connection) -> None:
        try:
            connection.receive(0)
        except ClientError as error:
            self._lost(connection, error)
        else:
            self._take_answers(connection)

    def _take_answers(self, connection: Connection) -> None:
        requests = self._requests[connection]
        while requests and requests[0].sent.answer is not None:
            request = requests.popleft()
            self._answered(request)
        if not requests:
            del self._requests[connection]

    def _lost(self, connection: Connection, error: ClientError) -> None:
        """The connection is gone: what came of its requests is not known, but for those that were answered before."""
        if connection not in self._requests:
            return
        self._take_answers(connection)
        for request in self._requests.pop(connection, ()):
            self._failed_all(request.passengers, error)

    def _answered(self, request: _Request) -> None:
        assert request.sent.answer is not None
        rows = {
            (topic["name"], row["index"]): row
            for topic in request.sent.answer["responses"]
            for row in topic["partition_responses"]
        }
        for lane, batch in request.passengers:
            row = rows.get(lane.partition)
            if row is None:
                self._failed(lane, batch, MalformedAnswer(f"the answer does not tell of {lane.partition}"))
                continue
            code = ErrorCode.of(row["error_code"])
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._written(lane, batch, row)
            else:
                text = row.get("error_message") or ""
                self._failed(lane, batch, BrokerRefused(code, f"produce to {lane.partition}", text))

    def _written(self, lane: Lane, batch: OutgoingBatch, row: dict[str, Any]) -> None:
        lane.answered(batch)
        lane.failures, lane.hindrance = 0, None
        known = row["error_code"] == ErrorCode.NONE
        batch.outcome.base_offset = row["base_offset"] if known else UNKNOWN_OFFSET
        batch.outcome.log_append_time_ms = row.get("log_append_time_ms", -1)
        self._settle(batch, None)

    # --- failures ---

    def _failed_all(self, passengers: list[_Passenger], error: ClientError) -> None:
        for lane, batch in passengers:
            self._failed(lane, batch, error)

    def _failed(self, lane: Lane, batch: OutgoingBatch, error: ClientError) -> None:
        """A try was in vain, or its outcome is not known."""
        first = lane.is_first(batch)
        lane.answered(batch)
        code = error.code if isinstance(error, BrokerRefused) else None
        if code in _WRONG_NUMBERS and self._rules.identity is not None and self._rules.transactional_id is None:
            self._wrong_numbers(lane, batch, error, first=first)
        elif not error.retriable:
            batch.maybe_written = batch.maybe_written or not isinstance(error, BrokerRefused)
            self._give_up(lane, batch, error)
        else:
            # An error that may pass says nothing of whether the batch is in the log by now.
            batch.maybe_written = True
            lane.hindrance = error
            lane.put_back(batch, self._retry_at_s(lane))
        self._cluster.doubt()

    def _wrong_numbers(self, lane: Lane, batch: OutgoingBatch, error: ClientError, *, first: bool) -> None:
        """The leader expects another sequence: one before this one is missing, or has yet to come."""
        if not first:
            lane.put_back(batch, lane.retry_at_s)
        elif batch.maybe_written:
            self._give_up(lane, batch, error)
        else:
            lane.must_restart = True
            lane.put_back(batch, self._retry_at_s(lane))

    def _retry_at_s(self, lane: Lane) -> float:
        lane.failures += 1
        options = self._cluster.options
        wait_s = backoff_s(self._surroundings.random, lane.failures, options.backoff_s, options.backoff_s_max)
        return self._surroundings.clock() + wait_s

    def _expire(self) -> None:
        """Give up what has waited too long."""
        now_s = self._surroundings.clock()
        for lane in self._active.values():
            while lane.waiting and lane.waiting[0].deadline_s <= now_s:
                batch = lane.waiting.popleft()
                late = ClientError(f"{lane.partition}: not delivered in time: {lane.hindrance or 'brokers were busy'}")
                late.__cause__ = lane.hindrance
                self._give_up(lane, batch, late)

    def _give_up(self, lane: Lane, batch: OutgoingBatch, error: ClientError) -> None:
        if batch.sequence >= 0:
            lane.must_restart = True
        if batch.maybe_written:
            unknown = OutcomeUnknown(f"produce to {lane.partition}: whether it was written is not known: {error}")
            unknown.__cause__ = error
            error = unknown
        self._settle(batch, error)

    def _settle(self, batch: OutgoingBatch, error: ClientError | None) -> None:
        batch.outcome.error = error
        batch.outcome.is_settled = True
        self._rules.settled(batch)
