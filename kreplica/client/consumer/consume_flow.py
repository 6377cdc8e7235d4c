"""All partitions that a consumer reads, and what keeps records coming."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from kreplica.client.cluster import Cluster
from kreplica.client.consumer.delivery import Outlet
from kreplica.client.consumer.fetcher import Fetcher
from kreplica.client.consumer.options import ConsumerOptions, OffsetReset
from kreplica.client.consumer.position_validation import Settler
from kreplica.client.consumer.positions import Reading
from kreplica.client.consumer.waiters import Changes
from kreplica.client_core.errors import ClientError, ConsumerClosed, OffsetOutOfRange
from kreplica.client_core.offsets import CommittedOffset
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.runtime.turns import Turns

T = TypeVar("T")


class Flow:
    """Wires settler, fetcher and outlet together.

    :ivar readings: in the order in which they are served.
    :ivar changed: fires when there may be something to hand out, or when that has ended.
    :ivar progressed: fires when what was handed out was gone past.
    :ivar is_behind: what was handed out last is of partitions that were taken away before it was gone past.
    :ivar turns: of whoever takes as fast as it can.
    :ivar error: why it has ended for good.
    :ivar closing: nobody asks for more.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        committed: Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, CommittedOffset]]],
    ) -> None:
        self._options = options
        self.reactor = cluster.runtime.reactor
        self.readings: dict[TopicPartition, Reading] = {}
        self.changed = Changes(self.reactor)
        self.progressed = Changes(self.reactor)
        self.error: Exception | None = None
        self.closing = self.closed = self.is_behind = False
        self._later: list[Reading] = []
        self.outlet = Outlet(self.pump, self._failed)
        self._settler = Settler(cluster, options, committed=committed, on_failed=self._failed, on_settled=self._settled)
        self._fetcher = Fetcher(
            cluster,
            options,
            self.readings,
            self._settler,
            on_arrived=self.outlet.arrived,
            on_failed=self._failed,
            on_changed=self.changed.fire,
        )
        self.turns = Turns(self.reactor)

    async def close(self) -> None:
        """End it; who waits for records learns that."""
        self.closed = True
        self.drop(list(self.readings))
        self._settler.close()
        await self._fetcher.close()
        self.changed.fire()
        self.progressed.fire()

    def pump(self) -> None:
        """Look for what may be asked for."""
        self._fetcher.pump()

    # --- partitions ---

    def add(self, readings: Iterable[Reading]) -> None:
        """Read partitions, besides those that there are."""
        for reading in readings:
            self.readings[reading.key] = reading
            if self.is_behind:
                # A transaction that goes on with what was handed out before may yet decide where to begin.
                reading.is_settling = True
                self._later.append(reading)
        self.pump()

    def drop(self, keys: Iterable[TopicPartition]) -> None:
        """Read partitions no more, and hand out nothing more of them."""
        for key in keys:
            reading = self.readings.pop(key, None)
            if reading is not None:
                self.is_behind = self.is_behind or reading.is_outstanding
                reading.put_back()
                reading.stock.clear()
                reading.is_over = True
        self.pump()

    def pause(self, keys: Iterable[TopicPartition]) -> None:
        """Hand nothing out of partitions that are read, and ask for nothing more."""
        for reading in self._find(keys):
            reading.put_back()
            reading.is_paused = True

    def resume(self, keys: Iterable[TopicPartition]) -> None:
        """The other way round."""
        for reading in self._find(keys):
            reading.is_paused = False
            if not reading.stock.is_empty or reading.error is not None:
                self.outlet.arrived(reading)
        self.pump()
        self.changed.fire()

    def hold(self, keys: Iterable[TopicPartition]) -> None:
        """Hand nothing out of partitions that are about to be given up."""
        for reading in self._find(keys):
            reading.put_back()
            reading.is_held = True

    def is_outstanding(self, key: TopicPartition) -> bool:
        """Whether something of a partition was handed out that is not done with."""
        reading = self.readings.get(key)
        return reading is not None and reading.is_outstanding

    def begin_at(self, key: TopicPartition, offset: int) -> None:
        """Read on elsewhere; what was fetched is forgotten."""
        self.find(key).begin_at(offset)
        self.pump()

    def find(self, key: TopicPartition) -> Reading:
        """:raise ValueError: it is not assigned."""
        return self._find([key])[0]

    def _find(self, keys: Iterable[TopicPartition]) -> list[Reading]:
        try:
            return [self.readings[key] for key in keys]
        except KeyError as error:
            raise ValueError(f"{error.args[0]} is not assigned to this consumer") from None

    # --- handing out ---

    async def take(self, take: Callable[[], T | None], timeout_s: float | None = None) -> T | None:
        """What there is next; None when the time is over, or the consumer is closed.

        :param timeout_s: None: as long as it takes.
        :raise Exception: the consumer, or one of its partitions, cannot go on.
        """
        self.gone_past()
        if self.turns.is_over:
            await self.turns.next()  # whoever takes as fast as it can lets others have their turn
        deadline_s = None if timeout_s is None else self.reactor.seconds() + timeout_s
        while not self.closed:
            found = self.take_now(take)
            if found is not None:
                return found
            left_s = None if deadline_s is None else deadline_s - self.reactor.seconds()
            if left_s is not None and left_s <= 0:
                await pause(self.reactor, 0)
                return None if self.closed else self.take_now(take)
            await self.changed.wait(left_s)
        return None

    def take_now(self, take: Callable[[], T | None]) -> T | None:
        """What there is."""
        if self.error is not None:
            raise self.error
        return take()

    def gone_past(self) -> None:
        """What was handed out is done with."""
        self.outlet.gone_past()
        self.caught_up()
        self.progressed.fire()

    def caught_up(self) -> None:
        """Nobody works any more on what was handed out of partitions that were taken away."""
        if self.is_behind:
            self.is_behind = False
            later, self._later = self._later, []
            for reading in later:
                reading.is_settling = False
            self.pump()

    def check_open(self) -> None:
        """:raise ConsumerClosed: it is."""
        if self.closed:
            raise ConsumerClosed("the consumer is closed")

    # --- what goes wrong ---

    def fail(self, error: Exception) -> None:
        """Let whoever asks for more be told that nothing comes."""
        self.error = error
        self.changed.fire()

    def _settled(self) -> None:
        self.pump()
        self.changed.fire()

    def _failed(self, reading: Reading, error: ClientError) -> None:
        if isinstance(error, OffsetOutOfRange) and self._options.offset_reset is not OffsetReset.FAIL:
            if reading.stock.is_empty and reading.handed is None and not reading.is_busy:
                self._settler.reset(reading, error)
            else:
                self._fetcher.wait_longer(reading, error)  # what was fetched before is handed out first
            return
        if not error.retriable:
            reading.error = error
        self._fetcher.wait_longer(reading, error)
        if reading.error is not None:
            self.outlet.arrived(reading)
