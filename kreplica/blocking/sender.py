"""Sends batches to leaders and takes the responses in; their effect is in ``client_core.produce_requests``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kreplica.blocking.cluster import Cluster
from kreplica.blocking.connection import Connection, Pending
from kreplica.client_core.addresses import Address
from kreplica.client_core.errors import ClientError
from kreplica.client_core.partition_queue import OutgoingBatch, PartitionQueue, ProducerIdentity
from kreplica.client_core.produce_requests import (
    ADDED_BY_CLIENT_MAX,
    REQUESTS_MAX,
    BatchOutcomes,
    QueuedBatch,
    fit_request,
    produce_body,
)
from kreplica.model import TopicPartition
from kreplica.wire.messages import PRODUCE

WAIT_S_MAX = 1.0


@dataclass(frozen=True, slots=True)
class SendingRules:
    """The producer's part of sending.

    :param acks: -1, 0 or 1.
    :param identity: returns the producer id and epoch, requested if necessary; None if batches are not numbered.
    :param join: called with partitions before records are sent to them, to add them to the transaction.
    :param settled: called with each batch that has an outcome.
    :param broken: returns the error that prevents sending, as in a failed transaction; None normally.
    """

    acks: int
    transactional_id: str | None
    identity: Callable[[], ProducerIdentity] | None
    renew_producer_id: Callable[[], None]
    join: Callable[[Iterable[TopicPartition]], None]
    settled: Callable[[OutgoingBatch], None]
    broken: Callable[[], ClientError | None]


class _Request(NamedTuple):
    sent: Pending
    batches: list[QueuedBatch[OutgoingBatch]]


class Sender:
    """Moves batches between their queues and the leaders; owned and driven by a producer."""

    def __init__(self, cluster: Cluster, rules: SendingRules) -> None:
        self._cluster = cluster
        self._rules = rules
        self._runtime = cluster.runtime
        self._connections = cluster.new_connections()
        self._requests: dict[Connection, deque[_Request]] = {}
        self._active: dict[TopicPartition, PartitionQueue[OutgoingBatch]] = {}
        self._outcomes: BatchOutcomes[OutgoingBatch] = BatchOutcomes(
            cluster.runtime.random,
            cluster.options,
            has_sequences=rules.identity is not None,
            is_transactional=rules.transactional_id is not None,
            settled=rules.settled,
        )

    @property
    def is_idle(self) -> bool:
        """True if all closed batches have an outcome."""
        return not self._active

    @property
    def in_flight(self) -> bool:
        """True if a response is pending."""
        return bool(self._requests)

    def add(self, queue: PartitionQueue[OutgoingBatch]) -> None:
        """Look at a queue that has a closed batch."""
        self._active[queue.partition] = queue

    def step(self, timeout_s: float = 0.0) -> None:
        """Send waiting batches and process responses; wait at most ``timeout_s`` while idle."""
        now_s = self._runtime.clock()
        for queue in self._active.values():
            self._outcomes.expire(queue, now_s)
        broken = self._rules.broken()
        if broken is not None:
            self._drop_waiting(broken)
        while self._send_ready():
            pass
        self._receive(timeout_s)
        for partition in [each for each, queue in self._active.items() if not queue.waiting and not queue.in_flight]:
            del self._active[partition]

    def drop(self, error: ClientError) -> bool:
        """Fail all waiting batches, and wait for those in flight.

        :return: True if one of them may have been written.
        """
        doubtful = False
        while self._active:
            doubtful = self._drop_waiting(error) or doubtful
            self._active = {each: queue for each, queue in self._active.items() if queue.in_flight}
            if self._requests:
                self._receive(WAIT_S_MAX)
            else:
                doubtful = self._fail_in_flight(error) or doubtful
        return doubtful

    def _fail_in_flight(self, error: ClientError) -> bool:
        """Fail batches whose requests an interrupt has lost.

        :return: True if there were any.
        """
        forgotten = [self._outcomes.fail_in_flight(queue, error) for queue in self._active.values()]
        self._active.clear()
        return any(forgotten)

    def _drop_waiting(self, error: ClientError) -> bool:
        """:return: True if one of them had sequence numbers."""
        numbered = [self._outcomes.drop_waiting(queue, error) for queue in self._active.values()]
        return any(numbered)

    def close(self) -> None:
        """Close the connections; pending batches remain without an outcome."""
        self._requests.clear()
        self._connections.close()

    # --- sending ---

    def _send_ready(self) -> bool:
        """Send one request per leader with waiting batches; return True if there was one."""
        now_s = self._runtime.clock()
        wanted: dict[Address, list[QueuedBatch[OutgoingBatch]]] = {}
        core = self._cluster.core
        for queue in self._active.values():
            self._outcomes.fail_unrecognizable(queue)
            batch = queue.sendable(now_s)
            if batch is None:
                continue
            try:
                leader = core.fresh_leader(queue.partition)
                address = core.address(self._cluster.leader(queue.partition) if leader is None else leader)
            except ClientError as error:
                self._outcomes.delay(queue, error, now_s)
            else:
                wanted.setdefault(address, []).append(QueuedBatch(queue, batch))
        sent = [self._send_to(address, batches) for address, batches in wanted.items()]
        return any(sent)

    def _send_to(self, address: Address, batches: list[QueuedBatch[OutgoingBatch]]) -> bool:
        try:
            connection = self._connections.to(address)
            if connection.pending >= REQUESTS_MAX or connection.silence_s:
                return False
            version = connection.version(PRODUCE, ADDED_BY_CLIENT_MAX)
            fitting = self._fit_request(batches)
        except ClientError as error:
            self._cluster.doubt()
            for queue, _ in batches:
                self._outcomes.delay(queue, error, self._runtime.clock())
            return False
        self._send(connection, version, fitting)
        return True

    def _fit_request(self, batches: list[QueuedBatch[OutgoingBatch]]) -> list[QueuedBatch[OutgoingBatch]]:
        """Return the batches for one request, with their numbers."""
        fitting = fit_request(batches)
        self._rules.join(queue.partition for queue, _ in fitting)
        if self._rules.identity is not None:
            for queue, batch in fitting:
                if queue.needs_producer_id():
                    self._rules.renew_producer_id()
                queue.assign_sequence(batch, self._rules.identity())
        return fitting

    def _send(self, connection: Connection, version: int, batches: list[QueuedBatch[OutgoingBatch]]) -> None:
        answered = self._rules.acks != 0
        timeout_s = self._cluster.options.request_timeout_s
        body = produce_body(batches, self._rules.transactional_id, self._rules.acks, int(timeout_s * 1000))
        for queue, batch in batches:
            queue.mark_sent(batch)
        try:
            # The broker has its own timeout, so the client waits longer.
            sent = connection.send(PRODUCE, body, version=version, timeout_s=2 * timeout_s, answered=answered)
        except KeyboardInterrupt:
            connection.close()  # a part of the request may have been sent
            raise
        except ClientError as error:
            self._lost(connection, error)
            self._failed(batches, error)
            return
        if answered:
            self._requests.setdefault(connection, deque()).append(_Request(sent, batches))
            return
        self._outcomes.complete_without_response(batches)

    # --- answers ---

    def _receive(self, timeout_s: float) -> None:
        wait_s = min(timeout_s, self._idle_s())
        if not self._requests:
            if wait_s > 0 and self._active:
                self._runtime.sleep(wait_s)
            return
        by_socket = {connection.socket: connection for connection in self._requests}
        for ready in self._runtime.wait_readable(list(by_socket), wait_s):
            self._receive_from(by_socket[ready])
        for connection in list(self._requests):
            try:
                connection.check_time()
            except ClientError as error:
                self._lost(connection, error)

    def _idle_s(self) -> float:
        """Return the time until the next retry, end of throttling or timeout, at most a second."""
        now_s = self._runtime.clock()
        times = [queue.retry_at_s for queue in self._active.values() if queue.waiting and queue.retry_at_s > now_s]
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
        """Process a lost connection: requests without a response have an unknown outcome."""
        if connection not in self._requests:
            return
        self._take_answers(connection)
        for request in self._requests.pop(connection, ()):
            self._failed(request.batches, error)

    def _answered(self, request: _Request) -> None:
        assert request.sent.answer is not None
        if not self._outcomes.process_response(request.sent.answer, request.batches, self._runtime.clock()):
            self._cluster.doubt()

    def _failed(self, batches: list[QueuedBatch[OutgoingBatch]], error: ClientError) -> None:
        self._outcomes.process_lost(batches, error, self._runtime.clock())
        self._cluster.doubt()
