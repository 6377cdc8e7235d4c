"""Handlers: each partition's records one after the other, several partitions at the same time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kreplica.client.consumer.consume_flow import Flow
from kreplica.client.consumer.options import Concurrency
from kreplica.client.consumer.positions import Reading
from kreplica.client.consumer.records import ConsumedBatch, ConsumedRecord

RecordHandler = Callable[[ConsumedRecord], Awaitable[None]]
BatchHandler = Callable[[ConsumedBatch], Awaitable[None]]


def partitions_max(concurrency: Concurrency | int) -> float:
    """How many partitions are worked on at the same time.

    :raise ValueError: none.
    """
    if isinstance(concurrency, Concurrency):
        return 1 if concurrency is Concurrency.SERIAL else float("inf")
    if concurrency < 1:
        raise ValueError(f"{concurrency} partitions at the same time are too few")
    return concurrency


class Run:
    """One run of a handler; it ends when the consumer is closed, ``stop`` is called, or a handler fails.

    A record that a handler has not finished with goes back, and is handed out again: to the next run, or to whoever
    reads the partition then.

    :param by: ``record`` or ``batch``: what the handler is given.
    """

    def __init__(
        self, flow: Flow, handler: RecordHandler | BatchHandler, concurrency: Concurrency | int, by: str
    ) -> None:
        self._flow = flow
        self._handler: Callable[[Any], Awaitable[None]] = handler
        self._by_batch = {"record": False, "batch": True}[by]
        self._partitions_max = partitions_max(concurrency)
        self._working: dict[Reading, Deferred[None]] = {}
        self._error: BaseException | None = None
        self._stopping = False

    @property
    def is_over(self) -> bool:
        """Whether nothing more is begun."""
        return self._stopping or self._flow.closing or self._error is not None

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping = True
        self._flow.changed.fire()

    async def ended(self, timeout_s: float) -> None:
        """Begin nothing more, and wait for what is under way; when the time is over, cancel it."""
        self.stop()
        deadline_s = self._flow.reactor.seconds() + timeout_s
        while self._working and (left_s := deadline_s - self._flow.reactor.seconds()) > 0:
            await self._flow.changed.wait(left_s)
        self.cancel()

    def cancel(self) -> None:
        """Cancel what is under way."""
        for working in list(self._working.values()):
            working.cancel()

    async def run(self) -> None:
        """Work until the end.

        :raise BaseException: what the first handler raised that failed, once the others have finished what they do.
        """
        flow = self._flow
        flow.gone_past()
        try:
            while not self.is_over:
                if len(self._working) >= self._partitions_max or not self._begin():
                    await flow.changed.wait()
                elif flow.turns.is_over:
                    await flow.turns.next()
            while self._working:
                await flow.changed.wait()
        except GeneratorExit:
            raise
        except BaseException:
            self._stopping = True
            self.cancel()
            raise
        if self._error is not None:
            raise self._error

    def _begin(self) -> bool:
        """Begin to work on a partition that has something."""
        flow = self._flow
        found = flow.take_now(flow.outlet.work)
        if found is None:
            return False
        reading, batch = found
        working = self._working[reading] = Deferred.fromCoroutine(self._work(reading, batch))
        working.addBoth(self._worked, reading)
        return True

    def _worked(self, result: Failure | None, reading: Reading) -> None:
        self._working.pop(reading, None)
        if result is not None and self._error is None and not self._stopping:
            self._error = result.value
        reading.is_busy = False
        if not any(each.is_over for each in self._working):
            self._flow.caught_up()
        if not reading.is_over and not reading.stock.is_empty:
            self._flow.outlet.arrived(reading)
        self._flow.pump()
        self._flow.progressed.fire()
        self._flow.changed.fire()

    async def _work(self, reading: Reading, batch: ConsumedBatch) -> None:
        if self._by_batch:
            await self._work_on_batch(reading, batch)
        else:
            await self._work_on_records(reading, batch)

    async def _work_on_batch(self, reading: Reading, batch: ConsumedBatch) -> None:
        turn = reading.turn
        try:
            await self._handler(batch)
        except BaseException:
            if turn == reading.turn and not reading.is_over:
                reading.give_back(batch)
            raise
        if turn == reading.turn:
            reading.gone_past_to(batch.next_offset, batch.leader_epoch)

    async def _work_on_records(self, reading: Reading, batch: ConsumedBatch) -> None:
        """One by one, as long as the partition is this consumer's, nobody has sought elsewhere, and it is to go on."""
        turn, done = reading.turn, 0
        records, last = batch.records, len(batch.records) - 1
        try:
            for index, record in enumerate(records):
                if reading.is_held or reading.is_paused or reading.is_over or self.is_over:
                    break
                await self._handler(record)
                if turn != reading.turn:
                    return
                done = index + 1
                following = batch.next_offset if index == last else records[done].offset
                reading.gone_past_to(following, batch.leader_epoch)
        finally:
            if done <= last and turn == reading.turn and not reading.is_over:
                reading.give_back(batch.split(done)[1] if done else batch)
