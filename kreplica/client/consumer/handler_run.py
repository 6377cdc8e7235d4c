"""Calls handlers: records of one partition in order, several partitions concurrently."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kreplica.client.consumer.consume_flow import ConsumeFlow
from kreplica.client.consumer.options import Concurrency
from kreplica.client.consumer.positions import PartitionState
from kreplica.client.consumer.records import ConsumedBatch, ConsumedRecord

RecordHandler = Callable[[ConsumedRecord], Awaitable[None]]
BatchHandler = Callable[[ConsumedBatch], Awaitable[None]]


def partitions_max(concurrency: Concurrency | int) -> float:
    """Return the maximum number of partitions processed concurrently.

    :raise ValueError: the number is not positive.
    """
    if isinstance(concurrency, Concurrency):
        return 1 if concurrency is Concurrency.SERIAL else float("inf")
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")
    return concurrency


class HandlerRun:
    """One run of a handler; ends when the consumer closes, ``stop`` is called, or a handler fails.

    Records that a handler did not complete are delivered again.

    :param by: ``record`` or ``batch``: the handler's argument.
    """

    def __init__(
        self, flow: ConsumeFlow, handler: RecordHandler | BatchHandler, concurrency: Concurrency | int, by: str
    ) -> None:
        self._flow = flow
        self._handler: Callable[[Any], Awaitable[None]] = handler
        self._by_batch = {"record": False, "batch": True}[by]
        self._partitions_max = partitions_max(concurrency)
        self._calls: dict[PartitionState, Deferred[None]] = {}
        self._error: BaseException | None = None
        self._stopping = False

    @property
    def is_over(self) -> bool:
        """True if the run is ending."""
        return self._stopping or self._flow.closing or self._error is not None

    def stop(self) -> None:
        """Stop delivering records."""
        self._stopping = True
        self._flow.changed.notify()

    async def stop_and_wait(self, timeout_s: float) -> None:
        """Stop delivering records, and wait for handlers; cancel them after the timeout."""
        self.stop()
        deadline_s = self._flow.reactor.seconds() + timeout_s
        while self._calls and (left_s := deadline_s - self._flow.reactor.seconds()) > 0:
            await self._flow.changed.wait(left_s)
        self.cancel()

    def cancel(self) -> None:
        """Cancel the handlers."""
        for call in list(self._calls.values()):
            call.cancel()

    async def run(self) -> None:
        """Call the handler until the run ends.

        :raise BaseException: the first handler's exception, after the other handlers have completed.
        """
        flow = self._flow
        flow.mark_processed()
        try:
            while not self.is_over:
                if len(self._calls) >= self._partitions_max or not self._begin():
                    await flow.changed.wait()
                elif flow.time_slice.is_over:
                    await flow.time_slice.next()
            while self._calls:
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
        """Call the handler for a partition that has records; return False if there is none."""
        flow = self._flow
        found = flow.take_now(flow.delivery.work)
        if found is None:
            return False
        state, batch = found
        call = self._calls[state] = Deferred.fromCoroutine(self._work(state, batch))
        call.addBoth(self._completed, state)
        return True

    def _completed(self, result: Failure | None, state: PartitionState) -> None:
        self._calls.pop(state, None)
        if result is not None and self._error is None and not self._stopping:
            self._error = result.value
        state.is_busy = False
        if not any(each.is_over for each in self._calls):
            self._flow.finish_revoked()
        if not state.is_over and not state.buffer.is_empty:
            self._flow.delivery.enqueue(state)
        self._flow.pump()
        self._flow.progressed.notify()
        self._flow.changed.notify()

    async def _work(self, state: PartitionState, batch: ConsumedBatch) -> None:
        if self._by_batch:
            await self._work_on_batch(state, batch)
        else:
            await self._work_on_records(state, batch)

    async def _work_on_batch(self, state: PartitionState, batch: ConsumedBatch) -> None:
        reset_count = state.reset_count
        try:
            await self._handler(batch)
        except BaseException:
            if reset_count == state.reset_count and not state.is_over:
                state.redeliver(batch)
            raise
        if reset_count == state.reset_count:
            state.mark_processed_to(batch.next_offset, batch.leader_epoch)

    async def _work_on_records(self, state: PartitionState, batch: ConsumedBatch) -> None:
        """Process records until the partition is paused, revoked or reset, or the run ends."""
        reset_count, done = state.reset_count, 0
        records, last = batch.records, len(batch.records) - 1
        try:
            for index, record in enumerate(records):
                if state.is_revoking or state.is_paused or state.is_over or self.is_over:
                    break
                await self._handler(record)
                if reset_count != state.reset_count:
                    return
                done = index + 1
                following = batch.next_offset if index == last else records[done].offset
                state.mark_processed_to(following, batch.leader_epoch)
        finally:
            if done <= last and reset_count == state.reset_count and not state.is_over:
                state.redeliver(batch.split(done)[1] if done else batch)
