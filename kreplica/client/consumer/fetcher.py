"""Fetches records: one request in flight per broker, while earlier records are delivered."""

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
from kreplica.client_core.fetch_requests import TOPIC_NAMES_VERSION_MAX, FetchLimits, fetch_body, grouped_by_topic, iter_fetched
from kreplica.client_core.fetched_batches import FetchedRecords
from kreplica.model import TopicPartition
from kreplica.runtime.turns import Turns
from kreplica.wire.messages import FETCH

log = Logger()

ANSWERS_MAX = 2
"""Maximum number of buffered responses per partition."""

SHORT_WAIT_MS = 10
"""Wait of a broker for idle partitions while the buffers of others are full."""


class _BrokerFetch:
    """Fetch request to one broker.

    :ivar size: maximum size of the response in flight.
    """

    __slots__ = ("asking", "last_s", "size")

    def __init__(self) -> None:
        self.asking: Deferred[None] | None = None
        self.size = 0
        self.last_s = float("-inf")


class Fetcher:
    """Fills the buffers of partitions within the memory limit.

    :param readings: assigned partitions, in the order of service.
    :param validator: finds and validates positions.
    :param on_arrived: called with a partition that has new records.
    :param on_failed: called with a partition and its error.
    :param on_changed: called after a response.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        readings: dict[TopicPartition, PartitionState],
        validator: PositionValidator,
        *,
        on_arrived: Callable[[PartitionState], None],
        on_failed: Callable[[PartitionState, ClientError], None],
        on_changed: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._readings = readings
        self._validator = validator
        self._on_arrived = on_arrived
        self._on_failed = on_failed
        self._on_changed = on_changed
        self._reactor = cluster.runtime.reactor
        self._connections = cluster.new_connections()
        self._lanes: dict[int, _BrokerFetch] = {}
        self._timer: IDelayedCall | None = None
        self._pumping = self._again = self._closed = False

    async def close(self) -> None:
        """Send no further requests, and close the connections."""
        self._closed = True
        self._set_timer(None)
        for lane in list(self._lanes.values()):
            if lane.asking is not None:
                lane.asking.cancel()
        await self._connections.close()

    # --- asking ---

    def pump(self) -> None:
        """Send a Fetch request to each broker without one, for partitions with free buffer space."""
        if self._pumping:
            self._again = True  # a reentrant call
            return
        self._pumping = self._again = True
        try:
            while self._again and not self._closed:
                self._again = False
                self._pump()
        finally:
            self._pumping = False

    def _pump(self) -> None:
        now_s = self._reactor.seconds()
        wanted: dict[int, list[PartitionState]] = {}
        unvalidated: list[PartitionState] = []
        full: set[int] = set()
        wake_s = float("inf")
        for reading in self._readings.values():
            if reading.retry_at_s > now_s:
                wake_s = min(wake_s, reading.retry_at_s)
            elif reading.is_asked or reading.is_validating or reading.error is not None:
                continue
            elif not self._validator.is_valid(reading):
                unvalidated.append(reading)
            elif not reading.is_paused and not reading.is_held:
                broker = self._broker_of(reading, now_s)
                if len(reading.buffer) >= ANSWERS_MAX:
                    full.add(broker)
                else:
                    wanted.setdefault(broker, []).append(reading)
        busy = {broker for broker, lane in self._lanes.items() if lane.asking is not None}
        share = max(1, self._options.buffer_size_max // max(1, len(busy | wanted.keys())))
        for broker, readings in wanted.items():
            lane = self._lanes.setdefault(broker, _BrokerFetch())
            if lane.asking is not None:
                continue
            due_s = lane.last_s + self._options.fetch_wait_s
            if broker in full and due_s > now_s:
                wake_s = min(wake_s, due_s)  # later, together with the others
                continue
            self._ask(broker, lane, readings, share, is_short=broker in full)
        self._validator.validate(unvalidated)
        self._set_timer(None if wake_s == float("inf") else wake_s - now_s)

    def _set_timer(self, delay_s: float | None) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None if delay_s is None else self._reactor.callLater(delay_s, self.pump)

    def _broker_of(self, reading: PartitionState, now_s: float) -> int:
        """Return the broker to fetch from: the leader, or a replica that it named."""
        view = self._cluster.view
        if reading.preferred != NO_BROKER:
            if reading.preferred in view.brokers and now_s < reading.preferred_until_s:
                return reading.preferred
            reading.preferred = NO_BROKER
        found = view.topics[reading.key.topic].partition(reading.key.partition)
        assert found is not None
        return found.leader

    def _ask(
        self, broker: int, lane: _BrokerFetch, readings: list[PartitionState], share: int, *, is_short: bool
    ) -> None:
        """:param share: this request's share of the memory, so that an idle broker cannot hold all of it."""
        options = self._options
        size = min(options.fetch_size_max, share, self._room(), len(readings) * options.partition_size_max)
        if size <= 0:
            return
        for reading in readings:
            reading.is_asked = True
        lane.size = size
        wait_ms = SHORT_WAIT_MS if is_short else int(options.fetch_wait_s * 1000)
        limits = FetchLimits(
            isolation=options.isolation,
            wait_ms=wait_ms,
            size_min=options.fetch_size_min,
            size_max=size,
            partition_size_max=options.partition_size_max,
            rack_id=options.rack_id,
        )
        asking = Deferred.fromCoroutine(self._fetch(broker, readings, limits))
        lane.asking = asking
        asking.addBoth(self._ended, lane, readings)

    def _room(self) -> int:
        """Return the bytes that may be requested; buffers of paused partitions are cleared if necessary."""
        whole = self._options.buffer_size_max - sum(lane.size for lane in self._lanes.values())
        room = whole - sum(reading.buffer.size for reading in self._readings.values())
        if room <= 0:
            for reading in self._readings.values():
                if reading.is_paused and reading.buffer.size:
                    room += reading.buffer.size
                    reading.refetch()
        return room

    async def _fetch(self, broker: int, readings: list[PartitionState], limits: FetchLimits) -> None:
        connection = await self._connections.to(self._cluster.address(broker))
        version = connection.version(FETCH, TOPIC_NAMES_VERSION_MAX)
        asked = {
            each.key: each
            for each in readings
            if not each.is_over and each.fetch_offset >= 0 and not each.is_paused
        }
        if not asked:
            return
        positions = {key: asked[key].fetch_offset for key in grouped_by_topic(asked)}
        epochs = {key: each.checked_epoch for key, each in asked.items()}
        timeout_s = limits.wait_ms / 1000 + self._cluster.options.request_timeout_s
        body = fetch_body(positions, limits, epochs)
        answer = await connection.request(FETCH, version, body, timeout_s=timeout_s)
        await self._take_in(answer, positions, asked, broker)

    def _ended(self, result: Any, lane: _BrokerFetch, readings: list[PartitionState]) -> None:
        lane.asking, lane.size, lane.last_s = None, 0, self._reactor.seconds()
        for reading in readings:
            reading.is_asked = False
        if result is not None:
            if result.check(ClientError):
                for reading in readings:
                    self._fail(reading, result.value)
            elif not (self._closed and result.check(CancelledError)):
                log.failure("a fetch failed", result)
                for reading in readings:
                    self._fail(reading, ClientError(f"a fetch failed: {result.getErrorMessage()}"))
        self.pump()
        self._on_changed()

    # --- answers ---

    async def _take_in(
        self,
        answer: dict[str, Any],
        positions: dict[TopicPartition, int],
        asked: dict[TopicPartition, PartitionState],
        broker: int,
    ) -> None:
        turns = Turns(self._reactor)
        for key, result in iter_fetched(answer, positions):
            reading = asked[key]
            if reading.is_over or reading.fetch_offset != positions[key]:
                continue  # reset or revoked meanwhile
            if isinstance(result, FetchedRecords):
                self._take(reading, result)
            else:
                self._fail(reading, result)
            if turns.is_over:
                await turns.next()

    def _take(self, reading: PartitionState, fetched: FetchedRecords) -> None:
        if fetched.preferred_replica != NO_BROKER:
            self._prefer(reading, fetched.preferred_replica)
            return
        reading.succeeded()
        if len(fetched.data):
            reading.buffer.add(fetched)
            reading.fetch_offset = fetched.next_offset
            self._readings[reading.key] = self._readings.pop(reading.key)  # served last next time
            self._on_arrived(reading)

    def _prefer(self, reading: PartitionState, replica: int) -> None:
        """Fetch from the replica that the leader named (KIP-392)."""
        if replica in self._cluster.view.brokers:
            reading.preferred = replica
            reading.preferred_until_s = self._reactor.seconds() + self._cluster.options.metadata_age_s_max
        else:  # the replica is newer than the metadata
            self.back_off(reading, LeaderUnknown(f"replica {replica} of {reading.key} is not known yet"))

    # --- failures ---

    def _fail(self, reading: PartitionState, error: ClientError) -> None:
        if reading.is_over:
            return
        if reading.preferred != NO_BROKER:
            reading.preferred = NO_BROKER  # return to the leader
            self.back_off(reading, error)
        else:
            self._on_failed(reading, error)

    def back_off(self, reading: PartitionState, error: ClientError) -> None:
        """Delay a partition after a failure; it fails after ``patience_s``."""
        now_s, options = self._reactor.seconds(), self._cluster.options
        if not reading.failures:
            reading.failing_since_s = now_s
        reading.failures += 1
        patience_s = self._options.patience_s
        if patience_s is not None and now_s - reading.failing_since_s > patience_s:
            gave_up = GaveUp(f"{reading.key} could not be read for {patience_s:g} s: {error}")
            gave_up.__cause__ = error
            reading.error = gave_up
            self._on_arrived(reading)
        wait_s = backoff_s(
            self._cluster.runtime.random, reading.failures, options.backoff_s, options.backoff_s_max
        )
        reading.retry_at_s = now_s + wait_s
        self._cluster.doubt()
