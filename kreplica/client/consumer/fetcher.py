"""Asking for records: one request is under way to each broker, while what came before is handed out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.client.cluster import Cluster
from kreplica.client.consumer.options import ConsumerOptions
from kreplica.client.consumer.position_validation import Settler
from kreplica.client.consumer.positions import NO_BROKER, Reading
from kreplica.client_core.backoff import backoff_s
from kreplica.client_core.errors import ClientError, GaveUp, LeaderUnknown
from kreplica.client_core.fetch_requests import BY_NAME_MAX, FetchLimits, fetch_body, grouped_by_topic, iter_fetched
from kreplica.client_core.fetched_batches import FetchedRecords
from kreplica.model import TopicPartition
from kreplica.runtime.turns import Turns
from kreplica.wire.messages import FETCH

log = Logger()

ANSWERS_MAX = 2
"""Of one partition in stock; the next is asked for when there are fewer."""

SHORT_WAIT_MS = 10
"""So long a broker waits for quiet partitions, while there is no room for what others have."""


class _Lane:
    """To one broker.

    :ivar size: bytes that the answer under way may have.
    """

    __slots__ = ("asking", "last_s", "size")

    def __init__(self) -> None:
        self.asking: Deferred[None] | None = None
        self.size = 0
        self.last_s = float("-inf")


class Fetcher:
    """Fills the stock of readings, as far as there is room.

    :param readings: those that there are, in the order in which they are to be served.
    :param settler: is told of readings whose position is not known, or may be wrong.
    :param on_arrived: called with a partition that has something in stock that it had not.
    :param on_failed: called with a partition, the error, and the broker that gave it.
    :param on_changed: called after an answer was taken in.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        readings: dict[TopicPartition, Reading],
        settler: Settler,
        *,
        on_arrived: Callable[[Reading], None],
        on_failed: Callable[[Reading, ClientError], None],
        on_changed: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._readings = readings
        self._settler = settler
        self._on_arrived = on_arrived
        self._on_failed = on_failed
        self._on_changed = on_changed
        self._reactor = cluster.runtime.reactor
        self._connections = cluster.new_connections()
        self._lanes: dict[int, _Lane] = {}
        self._timer: IDelayedCall | None = None
        self._pumping = self._again = self._closed = False

    async def close(self) -> None:
        """Ask for nothing more, and close the connections."""
        self._closed = True
        self._set_timer(None)
        for lane in list(self._lanes.values()):
            if lane.asking is not None:
                lane.asking.cancel()
        await self._connections.close()

    # --- asking ---

    def pump(self) -> None:
        """Let each broker that owes no answer have a request for what is wanted of it, where there is room."""
        if self._pumping:
            self._again = True  # called by something that it called
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
        wanted: dict[int, list[Reading]] = {}
        unsettled: list[Reading] = []
        full: set[int] = set()
        wake_s = float("inf")
        for reading in self._readings.values():
            if reading.retry_at_s > now_s:
                wake_s = min(wake_s, reading.retry_at_s)
            elif reading.is_asked or reading.is_settling or reading.error is not None:
                continue
            elif not self._settler.is_settled(reading):
                unsettled.append(reading)
            elif not reading.is_paused and not reading.is_held:
                broker = self._broker_of(reading, now_s)
                if len(reading.stock) >= ANSWERS_MAX:
                    full.add(broker)
                else:
                    wanted.setdefault(broker, []).append(reading)
        busy = {broker for broker, lane in self._lanes.items() if lane.asking is not None}
        share = max(1, self._options.buffer_size_max // max(1, len(busy | wanted.keys())))
        for broker, readings in wanted.items():
            lane = self._lanes.setdefault(broker, _Lane())
            if lane.asking is not None:
                continue
            due_s = lane.last_s + self._options.fetch_wait_s
            if broker in full and due_s > now_s:
                wake_s = min(wake_s, due_s)  # all at once, when there is room for the others
                continue
            self._ask(broker, lane, readings, share, is_short=broker in full)
        self._settler.settle(unsettled)
        self._set_timer(None if wake_s == float("inf") else wake_s - now_s)

    def _set_timer(self, delay_s: float | None) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None if delay_s is None else self._reactor.callLater(delay_s, self.pump)

    def _broker_of(self, reading: Reading, now_s: float) -> int:
        """From whom to read: the leader, or a replica that it named."""
        view = self._cluster.view
        if reading.preferred != NO_BROKER:
            if reading.preferred in view.brokers and now_s < reading.preferred_until_s:
                return reading.preferred
            reading.preferred = NO_BROKER
        found = view.topics[reading.key.topic].partition(reading.key.partition)
        assert found is not None
        return found.leader

    def _ask(self, broker: int, lane: _Lane, readings: list[Reading], share: int, *, is_short: bool) -> None:
        """:param share: of the room, which is no more than one broker's: one with no news holds what it may have."""
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
        """Bytes that may be asked for; what is paused makes room, for it can be asked for again."""
        whole = self._options.buffer_size_max - sum(lane.size for lane in self._lanes.values())
        room = whole - sum(reading.stock.size for reading in self._readings.values())
        if room <= 0:
            for reading in self._readings.values():
                if reading.is_paused and reading.stock.size:
                    room += reading.stock.size
                    reading.fetch_again()
        return room

    async def _fetch(self, broker: int, readings: list[Reading], limits: FetchLimits) -> None:
        connection = await self._connections.to(self._cluster.address(broker))
        version = connection.version(FETCH, BY_NAME_MAX)
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

    def _ended(self, result: Any, lane: _Lane, readings: list[Reading]) -> None:
        lane.asking, lane.size, lane.last_s = None, 0, self._reactor.seconds()
        for reading in readings:
            reading.is_asked = False
        if result is not None:
            if result.check(ClientError):
                for reading in readings:
                    self._fail(reading, result.value)
            elif not (self._closed and result.check(CancelledError)):
                log.failure("a fetch went wrong", result)
                for reading in readings:
                    self._fail(reading, ClientError(f"a fetch went wrong: {result.getErrorMessage()}"))
        self.pump()
        self._on_changed()

    # --- answers ---

    async def _take_in(
        self,
        answer: dict[str, Any],
        positions: dict[TopicPartition, int],
        asked: dict[TopicPartition, Reading],
        broker: int,
    ) -> None:
        turns = Turns(self._reactor)
        for key, result in iter_fetched(answer, positions):
            reading = asked[key]
            if reading.is_over or reading.fetch_offset != positions[key]:
                continue  # sought elsewhere, or given up
            if isinstance(result, FetchedRecords):
                self._take(reading, result)
            else:
                self._fail(reading, result)
            if turns.is_over:
                await turns.next()

    def _take(self, reading: Reading, fetched: FetchedRecords) -> None:
        if fetched.preferred_replica != NO_BROKER:
            self._prefer(reading, fetched.preferred_replica)
            return
        reading.succeeded()
        if len(fetched.data):
            reading.stock.add(fetched)
            reading.fetch_offset = fetched.next_offset
            self._readings[reading.key] = self._readings.pop(reading.key)  # the last to be served next time
            self._on_arrived(reading)

    def _prefer(self, reading: Reading, replica: int) -> None:
        """Read from the replica that the leader has named, instead of giving records (KIP-392)."""
        if replica in self._cluster.view.brokers:
            reading.preferred = replica
            reading.preferred_until_s = self._reactor.seconds() + self._cluster.options.metadata_age_s_max
        else:  # it came up after the cluster was asked how it looks
            self.wait_longer(reading, LeaderUnknown(f"replica {replica} of {reading.key} is not known yet"))

    # --- failures ---

    def _fail(self, reading: Reading, error: ClientError) -> None:
        if reading.is_over:
            return
        if reading.preferred != NO_BROKER:
            reading.preferred = NO_BROKER  # the leader knows better
            self.wait_longer(reading, error)
        else:
            self._on_failed(reading, error)

    def wait_longer(self, reading: Reading, error: ClientError) -> None:
        """Let a partition wait before it is tried again; it fails where it has waited long enough."""
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
