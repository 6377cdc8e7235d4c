"""Fetches records while earlier records are delivered, with one request in flight per broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.client.cluster import Cluster
from kreplica.client.consumer.options import ConsumerOptions
from kreplica.client.consumer.position_validation import PositionValidator
from kreplica.client.consumer.positions import NO_BROKER, PartitionState
from kreplica.client_core.backoff import backoff_s
from kreplica.client_core.errors import ClientError, GaveUp, LeaderUnknown
from kreplica.client_core.fetch_requests import (
    TOPIC_NAMES_VERSION_MAX,
    FetchLimits,
    fetch_body,
    grouped_by_topic,
    iter_fetched,
)
from kreplica.client_core.fetched_batches import FetchedRecords
from kreplica.model import TopicPartition
from kreplica.runtime.time_slice import TimeSlice
from kreplica.wire.messages import FETCH

log = Logger()

RESPONSES_MAX = 2
"""Maximum number of buffered responses per partition."""

SHORT_WAIT_MS = 10
"""Maximum time for which a broker waits for records while the buffers of some of its partitions are full."""


class _BrokerFetch:
    """Fetch requests to one broker, one at a time.

    :ivar in_flight: the request in flight.
    :ivar size: maximum size of its response.
    :ivar last_s: time at which the last request ended.
    """

    __slots__ = ("in_flight", "last_s", "size")

    def __init__(self) -> None:
        self.in_flight: Deferred[None] | None = None
        self.size = 0
        self.last_s = float("-inf")


class Fetcher:
    """Fills the buffers of partitions within the memory limit.

    :param states: assigned partitions, in the order in which they are fetched.
    :param validator: finds and validates positions.
    :param on_arrived: called with a partition that has new records.
    :param on_failed: called with a partition and its error.
    :param on_changed: called after a response.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        states: dict[TopicPartition, PartitionState],
        validator: PositionValidator,
        *,
        on_arrived: Callable[[PartitionState], None],
        on_failed: Callable[[PartitionState, ClientError], None],
        on_changed: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._states = states
        self._validator = validator
        self._on_arrived = on_arrived
        self._on_failed = on_failed
        self._on_changed = on_changed
        self._reactor = cluster.runtime.reactor
        self._connections = cluster.new_connections()
        self._broker_fetches: dict[int, _BrokerFetch] = {}
        self._timer: IDelayedCall | None = None
        self._pumping = self._pump_again = self._closed = False

    async def close(self) -> None:
        """Stop sending requests and close the connections."""
        self._closed = True
        self._set_timer(None)
        for broker_fetch in list(self._broker_fetches.values()):
            if broker_fetch.in_flight is not None:
                broker_fetch.in_flight.cancel()
        await self._connections.close()

    # --- requests ---

    def pump(self) -> None:
        """Send a Fetch request to each broker that has none in flight, for partitions with free buffer space."""
        if self._pumping:
            self._pump_again = True  # a reentrant call
            return
        self._pumping = self._pump_again = True
        try:
            while self._pump_again and not self._closed:
                self._pump_again = False
                self._pump()
        finally:
            self._pumping = False

    def _pump(self) -> None:
        now_s = self._reactor.seconds()
        fetchable: dict[int, list[PartitionState]] = {}
        unvalidated: list[PartitionState] = []
        full: set[int] = set()
        wake_s = float("inf")
        for state in self._states.values():
            if state.retry_at_s > now_s:
                wake_s = min(wake_s, state.retry_at_s)
            elif state.is_fetching or state.is_validating or state.error is not None:
                continue
            elif not self._validator.is_valid(state):
                unvalidated.append(state)
            elif not state.is_paused and not state.is_revoking:
                broker = self._broker_of(state, now_s)
                if len(state.buffer) >= RESPONSES_MAX:
                    full.add(broker)
                else:
                    fetchable.setdefault(broker, []).append(state)
        busy = {broker for broker, broker_fetch in self._broker_fetches.items() if broker_fetch.in_flight is not None}
        share = max(1, self._options.buffer_size_max // max(1, len(busy | fetchable.keys())))
        for broker, states in fetchable.items():
            broker_fetch = self._broker_fetches.setdefault(broker, _BrokerFetch())
            if broker_fetch.in_flight is not None:
                continue
            due_s = broker_fetch.last_s + self._options.fetch_wait_s
            if broker in full and due_s > now_s:
                wake_s = min(wake_s, due_s)  # fetched later, in one request with the full partitions
                continue
            self._send_fetch(broker, broker_fetch, states, share, is_short=broker in full)
        self._validator.validate(unvalidated)
        self._set_timer(None if wake_s == float("inf") else wake_s - now_s)

    def _set_timer(self, delay_s: float | None) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None if delay_s is None else self._reactor.callLater(delay_s, self.pump)

    def _broker_of(self, state: PartitionState, now_s: float) -> int:
        """Return the broker to fetch from: the leader, or the preferred replica that it named."""
        view = self._cluster.view
        if state.preferred != NO_BROKER:
            if state.preferred in view.brokers and now_s < state.preferred_until_s:
                return state.preferred
            state.preferred = NO_BROKER
        found = view.topics[state.key.topic].partition(state.key.partition)
        assert found is not None
        return found.leader

    def _send_fetch(
        self, broker: int, broker_fetch: _BrokerFetch, states: list[PartitionState], share: int, *, is_short: bool
    ) -> None:
        """Send a Fetch request.

        :param share: maximum size of the response, so that the request to an idle broker cannot reserve all memory.
        :param is_short: True if the broker may wait for at most ``SHORT_WAIT_MS``.
        """
        options = self._options
        size = min(options.fetch_size_max, share, self._free_bytes(), len(states) * options.partition_size_max)
        if size <= 0:
            return
        for state in states:
            state.is_fetching = True
        broker_fetch.size = size
        wait_ms = SHORT_WAIT_MS if is_short else int(options.fetch_wait_s * 1000)
        limits = FetchLimits(
            isolation=options.isolation,
            wait_ms=wait_ms,
            size_min=options.fetch_size_min,
            size_max=size,
            partition_size_max=options.partition_size_max,
            rack_id=options.rack_id,
        )
        in_flight = Deferred.fromCoroutine(self._fetch(broker, states, limits))
        broker_fetch.in_flight = in_flight
        in_flight.addBoth(self._on_end, broker_fetch, states)

    def _free_bytes(self) -> int:
        """Return the number of bytes that may be requested; clear the buffers of paused partitions if necessary."""
        unreserved = self._options.buffer_size_max - sum(each.size for each in self._broker_fetches.values())
        free_bytes = unreserved - sum(state.buffer.size for state in self._states.values())
        if free_bytes <= 0:
            for state in self._states.values():
                if state.is_paused and state.buffer.size:
                    free_bytes += state.buffer.size
                    state.refetch()
        return free_bytes

    async def _fetch(self, broker: int, states: list[PartitionState], limits: FetchLimits) -> None:
        connection = await self._connections.to(self._cluster.address(broker))
        version = connection.version(FETCH, TOPIC_NAMES_VERSION_MAX)
        requested = {
            each.key: each
            for each in states
            if not each.is_unassigned and each.fetch_offset >= 0 and not each.is_paused
        }
        if not requested:
            return
        positions = {key: requested[key].fetch_offset for key in grouped_by_topic(requested)}
        epochs = {key: each.validated_epoch for key, each in requested.items()}
        timeout_s = limits.wait_ms / 1000 + self._cluster.options.request_timeout_s
        body = fetch_body(positions, limits, epochs)
        response = await connection.request(FETCH, version, body, timeout_s=timeout_s)
        await self._process_response(response, positions, requested, broker)

    def _on_end(self, result: Any, broker_fetch: _BrokerFetch, states: list[PartitionState]) -> None:
        broker_fetch.in_flight, broker_fetch.size, broker_fetch.last_s = None, 0, self._reactor.seconds()
        for state in states:
            state.is_fetching = False
        if result is not None:
            if result.check(ClientError):
                for state in states:
                    self._fail(state, result.value)
            elif not (self._closed and result.check(CancelledError)):
                log.failure("a fetch failed", result)
                for state in states:
                    self._fail(state, ClientError(f"a fetch failed: {result.getErrorMessage()}"))
        self.pump()
        self._on_changed()

    # --- responses ---

    async def _process_response(
        self,
        response: dict[str, Any],
        positions: dict[TopicPartition, int],
        requested: dict[TopicPartition, PartitionState],
        broker: int,
    ) -> None:
        time_slice = TimeSlice(self._reactor)
        for key, result in iter_fetched(response, positions):
            state = requested[key]
            if state.is_unassigned or state.fetch_offset != positions[key]:
                continue  # reset or revoked in the meantime
            if isinstance(result, FetchedRecords):
                self._process_records(state, result)
            else:
                self._fail(state, result)
            if time_slice.is_over:
                await time_slice.next()

    def _process_records(self, state: PartitionState, fetched: FetchedRecords) -> None:
        if fetched.preferred_replica != NO_BROKER:
            self._prefer(state, fetched.preferred_replica)
            return
        state.reset_failures()
        if len(fetched.data):
            state.buffer.add(fetched)
            state.fetch_offset = fetched.next_offset
            self._states[state.key] = self._states.pop(state.key)  # last in the next request
            self._on_arrived(state)

    def _prefer(self, state: PartitionState, replica: int) -> None:
        """Fetch from the replica that the leader named (KIP-392)."""
        if replica in self._cluster.view.brokers:
            state.preferred = replica
            state.preferred_until_s = self._reactor.seconds() + self._cluster.options.metadata_age_s_max
        else:  # the replica is newer than the metadata
            self.back_off(state, LeaderUnknown(f"broker {replica}, a replica of {state.key}, is unknown"))

    # --- failures ---

    def _fail(self, state: PartitionState, error: ClientError) -> None:
        if state.is_unassigned:
            return
        if state.preferred != NO_BROKER:
            state.preferred = NO_BROKER  # return to the leader
            self.back_off(state, error)
        else:
            self._on_failed(state, error)

    def back_off(self, state: PartitionState, error: ClientError) -> None:
        """Delay a partition after a failure; fail it if it has been failing for longer than ``patience_s``."""
        now_s, options = self._reactor.seconds(), self._cluster.options
        if not state.failures:
            state.failing_since_s = now_s
        state.failures += 1
        patience_s = self._options.patience_s
        if patience_s is not None and now_s - state.failing_since_s > patience_s:
            gave_up = GaveUp(f"{state.key} could not be read for {patience_s:g} s: {error}")
            gave_up.__cause__ = error
            state.error = gave_up
            self._on_arrived(state)
        wait_s = backoff_s(
            self._cluster.runtime.random, state.failures, options.backoff_s, options.backoff_s_max
        )
        state.retry_at_s = now_s + wait_s
        self._cluster.mark_stale()
