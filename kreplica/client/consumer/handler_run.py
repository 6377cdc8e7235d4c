"""Calls handlers: in order for the records of one partition, concurrently for several partitions."""

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
    """One call of ``Consumer.run``; ends when the consumer closes, ``stop`` is called, or a handler fails.

    Records whose handler did not complete are delivered again.

    :param by: ``record`` or ``batch``, the kind of the handler's argument.
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
        """True if further handlers must not be started."""
        return self._stopping or self._flow.closing or self._error is not None

    def stop(self) -> None:
        """Stop delivering records."""
        self._stopping = True
        self._flow.changed.notify()

    async def stop_and_wait(self, timeout_s: float) -> None:
        """Stop delivering records and wait for the handlers; cancel them after the timeout."""
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

        :raise BaseException: the first exception of a handler, after the other handlers have completed.
        """
        flow = self._flow
        flow.mark_processed()
        try:
            while not self.is_over:
                if len(self._calls) >= self._partitions_max or not self._start_call():
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

    def _start_call(self) -> bool:
        """Call the handler for a partition that has records; return False if there is no such partition."""
        flow = self._flow
        found = flow.take_now(flow.delivery.batch_for_handler)
        if found is None:
            return False
        state, batch = found
        call = self._calls[state] = Deferred.fromCoroutine(self._process(state, batch))
        call.addBoth(self._completed, state)
        return True

    def _completed(self, result: Failure | None, state: PartitionState) -> None:
        self._calls.pop(state, None)
        if result is not None and self._error is None and not self._stopping:
            self._error = result.value
        state.is_busy = False
        if not any(each.is_unassigned for each in self._calls):
            self._flow.finish_revoked()
        if not state.is_unassigned and not state.buffer.is_empty:
            self._flow.delivery.enqueue(state)
        self._flow.pump()
        self._flow.progressed.notify()
        self._flow.changed.notify()

    async def _process(self, state: PartitionState, batch: ConsumedBatch) -> None:
        if self._by_batch:
            await self._process_batch(state, batch)
        else:
            await self._process_records(state, batch)

    async def _process_batch(self, state: PartitionState, batch: ConsumedBatch) -> None:
        reset_count = state.reset_count
        try:
            await self._handler(batch)
        except BaseException:
            if reset_count == state.reset_count and not state.is_unassigned:
                state.redeliver(batch)
            raise
        if reset_count == state.reset_count:
            state.mark_processed_to(batch.next_offset, batch.leader_epoch)

    async def _process_records(self, state: PartitionState, batch: ConsumedBatch) -> None:
        """Process records until the partition is paused, revoked or reset, or the run ends."""
        reset_count, processed_count = state.reset_count, 0
        records, last = batch.records, len(batch.records) - 1
        try:
            for index, record in enumerate(records):
                if state.is_revoking or state.is_paused or state.is_unassigned or self.is_over:
                    break
                await self._handler(record)
                if reset_count != state.reset_count:
                    return
                processed_count = index + 1
                next_offset = batch.next_offset if index == last else records[processed_count].offset
                state.mark_processed_to(next_offset, batch.leader_epoch)
        finally:
            if processed_count <= last and reset_count == state.reset_count and not state.is_unassigned:
                state.redeliver(batch.split(processed_count)[1] if processed_count else batch)
