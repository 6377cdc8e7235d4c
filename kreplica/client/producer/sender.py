"""Sends batches to leaders and processes the responses according to the rules in ``client_core.produce_requests``.

Events mark the partition queues that they affect; one call in the next reactor iteration processes all marked queues,
so that one request contains the batches of all partitions of a leader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Protocol, TypeAlias

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.cluster import Cluster
from kreplica.client.connection import Connection
from kreplica.client.producer.accumulator import OutgoingQueue
from kreplica.client.producer.leader_routes import LeaderRoute
from kreplica.client.producer.options import ProducerOptions
from kreplica.client.producer.record_batch import GatheredBatch
from kreplica.client_core.errors import ClientError, ConnectionLost, LeaderUnknown
from kreplica.client_core.partition_queue import ProducerIdentity
from kreplica.client_core.produce_requests import (
    CLIENT_ADDS_PARTITIONS_VERSION_MAX,
    BatchOutcomes,
    QueuedBatch,
    fit_request,
    produce_body,
)
from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.wire.messages import PRODUCE

log = Logger()

QueuedBatches: TypeAlias = list[QueuedBatch[GatheredBatch]]

RESPONSE_MARGIN_S = 5.0
"""Additional time to wait for a response, because the broker applies the request timeout itself."""

SWEEPS = 4
"""Number of checks for expired batches per delivery timeout."""

SWEEP_S_MAX = 0.5


class IdentitySource(Protocol):
    """Provides the producer id and epoch of batches, and adds their partitions to a transaction."""

    @property
    def error(self) -> ClientError | None:
        """The error that prevents sending; None if there is none."""

    def producer_id(self) -> ProducerIdentity | None:
        """Return the identity; None while it is being requested."""

    def renew(self) -> None:
        """Request a new identity, because the epochs of the current one are exhausted."""

    def admit(self, partition: TopicPartition) -> bool:
        """Return True if a partition belongs to the transaction; otherwise start adding it."""


@dataclass(slots=True)
class _Request:
    route: LeaderRoute
    batches: QueuedBatches


class Sender:
    """Moves closed batches between their queues and the leaders; owned by a producer.

    :param identity_source: None if batches have no sequence numbers.
    :param close_due: closes a queue's open batch if it is due.
    :param on_settled: called with batches that have been written or have failed; it may call the sender.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        identity_source: IdentitySource | None,
        close_due: Callable[[OutgoingQueue, float], None],
        on_settled: Callable[[list[GatheredBatch]], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._identity_source = identity_source
        self._close_due = close_due
        self._on_settled = on_settled
        self._reactor = cluster.runtime.reactor
        self._connections = cluster.new_connections()
        self._settled: list[GatheredBatch] = []
        self._outcomes: BatchOutcomes[GatheredBatch] = BatchOutcomes(
            cluster.runtime.random,
            cluster.options,
            has_sequences=options.is_idempotent,
            is_transactional=options.transactional_id is not None,
            on_settled=self._settled.append,
        )
        self._routes: dict[int, LeaderRoute] = {}
        self._marked: dict[OutgoingQueue, None] = {}
        self._blocked: dict[OutgoingQueue, None] = {}
        self._active: dict[OutgoingQueue, None] = {}
        self._alarms: list[tuple[float, int, OutgoingQueue]] = []
        self._alarms_count = 0
        self._alarm_call: IDelayedCall | None = None
        self._step_call: IDelayedCall | None = None
        self._sweep_call: IDelayedCall | None = None
        self._refreshing: Deferred[Any] | None = None
        self._in_step = False
        self._is_closed = False

    def mark(self, queue: OutgoingQueue) -> None:
        """Schedule a queue to be processed in the next step."""
        self._marked[queue] = None
        if self._step_call is None and not self._is_closed and not self._in_step:
            self._step_call = self._reactor.callLater(0, self._run_step)

    def unblock_queues(self) -> None:
        """Mark all queues that are waiting for an identity or for metadata."""
        for queue in self._blocked:
            self.mark(queue)
        self._blocked.clear()

    def drop(self, error: ClientError) -> bool:
        """Fail all batches that are waiting, but not those in flight.

        :return: True if one of the failed batches may have been written by an earlier attempt.
        """
        possibly_written = [self._outcomes.drop_waiting(queue, error) for queue in self._busy_queues()]
        self._notify_settled()
        return any(possibly_written)

    async def close(self, error: ClientError) -> None:
        """Fail all batches and close the connections."""
        self._is_closed = True
        for call in (self._step_call, self._alarm_call, self._sweep_call):
            if call is not None and call.active():
                call.cancel()
        if self._refreshing is not None:
            self._refreshing.cancel()
        for route in self._routes.values():
            route.close()
        for queue in self._busy_queues():
            self._outcomes.fail_all(queue, error)
        self._notify_settled()
        await self._connections.close()

    def _busy_queues(self) -> list[OutgoingQueue]:
        """Return the queues that are active or marked."""
        return list(self._active | self._marked)

    # --- steps ---

    def _run_step(self) -> None:
        self._step_call = None
        self._step()
        self._notify_settled()

    def _step(self) -> None:
        """Send as many requests as possible."""
        if self._is_closed:
            return
        self._in_step = True
        now_s = self._reactor.seconds()
        while self._marked:
            self._send_marked(now_s)
        self._in_step = False
        if self._active and self._sweep_call is None:
            self._sweep_call = self._reactor.callLater(self._sweep_interval_s, self._sweep)

    def _send_marked(self, now_s: float) -> None:
        marked, self._marked = self._marked, {}
        by_leader: dict[int, QueuedBatches] = {}
        for queue in marked:
            found = self._next_batch(queue, now_s)
            if found is not None:
                by_leader.setdefault(found[0], []).append(found[1])
        for leader, batches in by_leader.items():
            self._send_to(self._routes[leader], batches, now_s)

    def _notify_settled(self) -> None:
        """Report batches that have been written or have failed; the callback may call the sender."""
        if self._settled:
            settled = self._settled.copy()
            self._settled.clear()
            self._on_settled(settled)

    def _next_batch(self, queue: OutgoingQueue, now_s: float) -> tuple[int, QueuedBatch[GatheredBatch]] | None:
        """Return the leader and the batch that a queue may send now; if None, a later event marks the queue again."""
        self._close_due(queue, now_s)
        self._outcomes.fail_undetectable_duplicates(queue)
        if queue.waiting or queue.in_flight:
            self._active[queue] = None
        else:
            self._active.pop(queue, None)
            return None
        identity_source = self._identity_source
        if identity_source is not None and identity_source.error is not None:
            self._outcomes.drop_waiting(queue, identity_source.error)
        batch = queue.sendable(now_s)
        if batch is None:
            if queue.waiting and queue.retry_at_s > now_s:
                self._set_alarm(queue)
            return None
        if identity_source is not None and not self._has_identity(queue, identity_source):
            self._blocked[queue] = None
            return None
        leader = self._leader(queue, now_s)
        if leader is None:
            return None
        route = self._routes.get(leader)
        if route is None:
            route = self._routes[leader] = LeaderRoute(leader, self._reactor, self._on_route_free)
        if not route.is_free:
            route.parked[queue] = None
            return None
        return leader, QueuedBatch(queue, batch)

    def _has_identity(self, queue: OutgoingQueue, identity_source: IdentitySource) -> bool:
        identity = identity_source.producer_id()
        used = queue.identity if queue.needs_producer_id() else None
        if used is not None and identity is not None and used.producer_id == identity.producer_id:
            identity_source.renew()
            identity = identity_source.producer_id()
        return identity is not None and identity_source.admit(queue.partition)

    def _leader(self, queue: OutgoingQueue, now_s: float) -> int | None:
        """Return the partition's leader; after a failure, only according to metadata refreshed since then."""
        cluster, topic = self._cluster, queue.partition.topic
        if cluster.known_topic(topic) is None:
            refreshing = self._refresh(topic)
            if queue.failures and refreshing:
                self._blocked[queue] = None
                return None
        leader = cluster.known_leader(queue.partition)
        if leader is not None:
            return leader
        cluster.mark_stale()
        self._delay(queue, LeaderUnknown(f"{queue.partition} currently has no leader"), now_s)
        return None

    def _delay(self, queue: OutgoingQueue, error: ClientError, now_s: float) -> None:
        """Delay the first waiting batch, which cannot be sent, or fail it if the error is final."""
        self._outcomes.delay(queue, error, now_s)
        self.mark(queue)

    def _refresh(self, topic: str) -> bool:
        """Start a metadata request unless one is in flight; return True if it is still in flight."""
        if self._refreshing is None:
            refreshing = self._refreshing = Deferred.fromCoroutine(self._cluster.refresh((topic,)))
            refreshing.addBoth(self._refreshed)
        return self._refreshing is not None

    def _refreshed(self, outcome: object) -> None:
        self._refreshing = None
        if self._is_closed:
            return
        if isinstance(outcome, Failure) and not outcome.check(ClientError):
            log.failure("cannot refresh metadata", outcome)
        self.unblock_queues()

    # --- requests ---

    def _send_to(self, route: LeaderRoute, batches: QueuedBatches, now_s: float) -> None:
        connection = None
        try:
            connection = self._connections.find_open(self._cluster.address(route.leader))
            if connection is not None:
                self._send(route, connection, fit_request(batches, self._options.request_size_max))
        except ClientError as error:
            self._cluster.mark_stale()
            for queue, _ in batches:
                self._delay(queue, error, now_s)
            return
        if connection is None:
            for queue, _ in batches:
                route.parked[queue] = None
            connecting = Deferred.fromCoroutine(self._connections.to(self._cluster.address(route.leader)))
            route.connect(connecting, self._connect_failed)
            return
        for queue, _ in batches:
            self._marked[queue] = None  # the other batches are sent next

    def _send(self, route: LeaderRoute, connection: Connection, fitting: QueuedBatches) -> None:
        version = connection.version(PRODUCE, CLIENT_ADDS_PARTITIONS_VERSION_MAX)
        identity = None if self._identity_source is None else self._identity_source.producer_id()
        for queue, batch in fitting:
            if identity is not None:
                queue.assign_sequence(batch, identity)
            queue.mark_sent(batch)
        timeout_s = self._cluster.options.request_timeout_s
        options = self._options
        body = produce_body(fitting, options.transactional_id, options.acks, int(timeout_s * 1000))
        request = _Request(route, fitting)
        route.in_flight += 1
        response = connection.request(
            PRODUCE, version, body, timeout_s=timeout_s + RESPONSE_MARGIN_S, expects_response=options.acks != 0
        )
        response.addCallbacks(self._responded, self._on_lost, callbackArgs=(request,), errbackArgs=(request,))
        response.addErrback(self._log_failure)

    def _responded(self, response: dict[str, Any], request: _Request) -> None:
        request.route.in_flight -= 1
        if self._is_closed:
            return
        now_s = self._reactor.seconds()
        if self._options.acks == 0:
            self._outcomes.complete_without_response(request.batches)
        else:
            request.route.throttle(response.get("throttle_time_ms", 0) / 1000)
            if not self._outcomes.process_response(response, request.batches, now_s):
                self._cluster.mark_stale()
        self._completed(request)

    def _on_lost(self, failure: Failure, request: _Request) -> None:
        request.route.in_flight -= 1
        if self._is_closed:
            return
        error = failure.value
        if not isinstance(error, ClientError):
            log.failure("a Produce request failed", failure)
            error = ConnectionLost(str(error))
        self._outcomes.process_lost_request(request.batches, error, self._reactor.seconds())
        self._cluster.mark_stale()
        self._completed(request)

    def _completed(self, request: _Request) -> None:
        for queue, _ in request.batches:
            self.mark(queue)
        self._on_route_free(request.route)

    def _log_failure(self, failure: Failure) -> None:
        log.failure("cannot process a Produce response", failure)

    def _on_route_free(self, route: LeaderRoute) -> None:
        """Mark the queues that are waiting to send to a leader."""
        for queue in route.parked:
            self.mark(queue)
        route.parked.clear()

    def _connect_failed(self, route: LeaderRoute, failure: Failure) -> None:
        """Delay the queues of an unreachable leader."""
        error = failure.value
        if not isinstance(error, ClientError):
            if not isinstance(error, KreplicaError):
                log.failure("cannot connect to broker {leader}", failure, leader=route.leader)
            error = ConnectionLost(str(error))
        self._cluster.mark_stale()
        now_s = self._reactor.seconds()
        for queue in route.parked:
            if queue.waiting:
                self._delay(queue, error, now_s)
        route.parked.clear()

    # --- time ---

    def _set_alarm(self, queue: OutgoingQueue) -> None:
        """Mark a queue at the time of its next retry."""
        self._alarms_count += 1
        heappush(self._alarms, (queue.retry_at_s, self._alarms_count, queue))
        at_s = self._alarms[0][0]
        call = self._alarm_call
        if call is not None and call.getTime() <= at_s:
            return
        if call is not None:
            call.cancel()
        self._alarm_call = self._reactor.callLater(max(0.0, at_s - self._reactor.seconds()), self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm_call = None
        now_s = self._reactor.seconds()
        while self._alarms and self._alarms[0][0] <= now_s:
            self.mark(heappop(self._alarms)[2])
        if self._alarms:
            self._alarm_call = self._reactor.callLater(max(0.0, self._alarms[0][0] - now_s), self._on_alarm)

    @property
    def _sweep_interval_s(self) -> float:
        return min(SWEEP_S_MAX, self._options.delivery_timeout_s / SWEEPS)

    def _sweep(self) -> None:
        """Fail expired batches."""
        self._sweep_call = None
        now_s = self._reactor.seconds()
        for queue in list(self._active):
            self._outcomes.expire(queue, now_s)
            self.mark(queue)
        if self._settled or self._active:
            self._sweep_call = self._reactor.callLater(self._sweep_interval_s, self._sweep)
