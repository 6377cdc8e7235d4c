"""Sends batches to leaders and receives the responses, which ``client_core.produce_requests`` processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kreplica.blocking.cluster import Cluster
from kreplica.blocking.connection import Connection, PendingRequest
from kreplica.client_core.addresses import Address
from kreplica.client_core.errors import ClientError
from kreplica.client_core.partition_queue import OutgoingBatch, PartitionQueue, ProducerIdentity
from kreplica.client_core.produce_requests import (
    CLIENT_ADDS_PARTITIONS_VERSION_MAX,
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
class ProducerCallbacks:
    """Options and callbacks of the producer that owns a sender.

    :param acks: -1, 0 or 1.
    :param get_identity: returns the producer id and epoch, which it requests if necessary; None if batches have no
        sequence numbers.
    :param add_partitions: adds partitions to the transaction; called before records are sent to them.
    :param on_settled: called with each batch that has been written or has failed.
    :param get_error: returns the error that prevents sending, such as that of a failed transaction, or None.
    """

    acks: int
    transactional_id: str | None
    get_identity: Callable[[], ProducerIdentity] | None
    renew_producer_id: Callable[[], None]
    add_partitions: Callable[[Iterable[TopicPartition]], None]
    on_settled: Callable[[OutgoingBatch], None]
    get_error: Callable[[], ClientError | None]


class _Request(NamedTuple):
    sent: PendingRequest
    batches: list[QueuedBatch[OutgoingBatch]]


class Sender:
    """Sends queued batches to the leaders; has no thread and works only while the owning producer calls it."""

    def __init__(self, cluster: Cluster, callbacks: ProducerCallbacks) -> None:
        self._cluster = cluster
        self._callbacks = callbacks
        self._runtime = cluster.runtime
        self._connections = cluster.new_connections()
        self._requests: dict[Connection, deque[_Request]] = {}
        self._active: dict[TopicPartition, PartitionQueue[OutgoingBatch]] = {}
        self._outcomes: BatchOutcomes[OutgoingBatch] = BatchOutcomes(
            cluster.runtime.random,
            cluster.options,
            has_sequences=callbacks.get_identity is not None,
            is_transactional=callbacks.transactional_id is not None,
            on_settled=callbacks.on_settled,
        )

    @property
    def is_idle(self) -> bool:
        """True if all closed batches have been written or have failed."""
        return not self._active

    def add(self, queue: PartitionQueue[OutgoingBatch]) -> None:
        """Add a queue that has a closed batch."""
        self._active[queue.partition] = queue

    def step(self, timeout_s: float = 0.0) -> None:
        """Send waiting batches and process responses; wait at most ``timeout_s`` for a response or the next retry."""
        try:
            self._step(timeout_s)
        except BaseException as error:
            self._fail_interrupted(error)
            raise

    def _step(self, timeout_s: float) -> None:
        now_s = self._runtime.clock()
        for queue in self._active.values():
            self._outcomes.expire(queue, now_s)
        error = self._callbacks.get_error()
        if error is not None:
            self._drop_waiting(error)
        while self._send_ready():
            pass
        self._receive(timeout_s)
        for partition in [each for each, queue in self._active.items() if not queue.waiting and not queue.in_flight]:
            del self._active[partition]

    def drop(self, error: ClientError) -> bool:
        """Fail all waiting batches and wait for the batches in flight.

        :return: True if one of the failed batches may have been written.
        """
        is_uncertain = False
        try:
            while self._active:
                is_uncertain = self._drop_waiting(error) or is_uncertain
                self._active = {each: queue for each, queue in self._active.items() if queue.in_flight}
                if self._active:
                    self._receive(WAIT_S_MAX)
        except BaseException as interrupt:
            self._fail_interrupted(interrupt)
            raise
        return is_uncertain

    def _fail_interrupted(self, reason: BaseException) -> None:
        """Fail all batches after an interrupt, such as Ctrl-C, at an arbitrary point.

        Requests, responses and batches may no longer correspond, so the connections are closed and every partition
        restarts its sequence numbers.
        """
        self._requests.clear()
        self._connections.close()
        error = ClientError(f"the producer was interrupted: {reason!r}")
        for queue in self._active.values():
            queue.must_restart = True
            self._outcomes.fail_all(queue, error)
        self._active.clear()

    def _drop_waiting(self, error: ClientError) -> bool:
        """Fail all waiting batches; return True if any of them had sequence numbers and so may have been written."""
        possibly_written = [self._outcomes.drop_waiting(queue, error) for queue in self._active.values()]
        return any(possibly_written)

    def close(self) -> None:
        """Close the connections and discard pending batches."""
        self._requests.clear()
        self._connections.close()

    # --- sending ---

    def _send_ready(self) -> bool:
        """Send at most one request to each leader with waiting batches; return True if any request was sent."""
        now_s = self._runtime.clock()
        batches_by_leader: dict[Address, list[QueuedBatch[OutgoingBatch]]] = {}
        core = self._cluster.core
        for queue in self._active.values():
            self._outcomes.fail_undetectable_duplicates(queue)
            batch = queue.sendable(now_s)
            if batch is None:
                continue
            try:
                leader = core.fresh_leader(queue.partition)
                address = core.address(self._cluster.leader(queue.partition) if leader is None else leader)
            except ClientError as error:
                self._outcomes.delay(queue, error, now_s)
            else:
                batches_by_leader.setdefault(address, []).append(QueuedBatch(queue, batch))
        sent = [self._send_to(address, batches) for address, batches in batches_by_leader.items()]
        return any(sent)

    def _send_to(self, address: Address, batches: list[QueuedBatch[OutgoingBatch]]) -> bool:
        try:
            connection = self._connections.to(address)
            if connection.pending >= REQUESTS_MAX or connection.throttle_remaining_s:
                return False
            version = connection.version(PRODUCE, CLIENT_ADDS_PARTITIONS_VERSION_MAX)
            batches_to_send = self._fit_request(batches)
        except ClientError as error:
            self._cluster.mark_stale()
            for queue, _ in batches:
                self._outcomes.delay(queue, error, self._runtime.clock())
            return False
        self._send(connection, version, batches_to_send)
        return True

    def _fit_request(self, batches: list[QueuedBatch[OutgoingBatch]]) -> list[QueuedBatch[OutgoingBatch]]:
        """Assign sequence numbers to the batches that fit into one request, and return them."""
        batches_to_send = fit_request(batches)
        self._callbacks.add_partitions(queue.partition for queue, _ in batches_to_send)
        if self._callbacks.get_identity is not None:
            for queue, batch in batches_to_send:
                if queue.needs_producer_id():
                    self._callbacks.renew_producer_id()
                queue.assign_sequence(batch, self._callbacks.get_identity())
        return batches_to_send

    def _send(self, connection: Connection, version: int, batches: list[QueuedBatch[OutgoingBatch]]) -> None:
        expects_response = self._callbacks.acks != 0
        timeout_s = self._cluster.options.request_timeout_s
        body = produce_body(batches, self._callbacks.transactional_id, self._callbacks.acks, int(timeout_s * 1000))
        for queue, batch in batches:
            queue.mark_sent(batch)
        try:
            # The broker applies the same timeout, so the client waits longer.
            sent = connection.send(
                PRODUCE, body, version=version, timeout_s=2 * timeout_s, expects_response=expects_response
            )
        except ClientError as error:
            self._on_connection_lost(connection, error)
            self._on_lost_requests(batches, error)
            return
        if expects_response:
            self._requests.setdefault(connection, deque()).append(_Request(sent, batches))
            return
        self._outcomes.complete_without_response(batches)

    # --- responses ---

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
                connection.check_deadline()
            except ClientError as error:
                self._on_connection_lost(connection, error)

    def _idle_s(self) -> float:
        """Return the time until the next retry, end of throttling or timeout; at most ``WAIT_S_MAX``."""
        now_s = self._runtime.clock()
        times = [queue.retry_at_s for queue in self._active.values() if queue.waiting and queue.retry_at_s > now_s]
        times += [connection.deadline_s or now_s for connection in self._requests]
        times += [now_s + each.throttle_remaining_s for each in self._connections if each.throttle_remaining_s]
        return max(0.0, min(WAIT_S_MAX, *(time_s - now_s for time_s in times))) if times else WAIT_S_MAX

    def _receive_from(self, connection: Connection) -> None:
        try:
            connection.receive(0)
        except ClientError as error:
            self._on_connection_lost(connection, error)
        else:
            self._process_responses(connection)

    def _process_responses(self, connection: Connection) -> None:
        requests = self._requests[connection]
        while requests and requests[0].sent.response is not None:
            request = requests.popleft()
            self._process_response(request)
        if not requests:
            del self._requests[connection]

    def _on_connection_lost(self, connection: Connection, error: ClientError) -> None:
        """Process a lost connection: the outcome of requests without a response is unknown."""
        if connection not in self._requests:
            return
        self._process_responses(connection)
        for request in self._requests.pop(connection, ()):
            self._on_lost_requests(request.batches, error)

    def _process_response(self, request: _Request) -> None:
        assert request.sent.response is not None
        if not self._outcomes.process_response(request.sent.response, request.batches, self._runtime.clock()):
            self._cluster.mark_stale()

    def _on_lost_requests(self, batches: list[QueuedBatch[OutgoingBatch]], error: ClientError) -> None:
        self._outcomes.process_lost_request(batches, error, self._runtime.clock())
        self._cluster.mark_stale()
