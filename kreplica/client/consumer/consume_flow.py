"""The assigned partitions of a consumer and the flow of their records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from kreplica.client.cluster import Cluster
from kreplica.client.consumer.delivery import DeliveryQueue
from kreplica.client.consumer.fetcher import Fetcher
from kreplica.client.consumer.options import ConsumerOptions, OffsetReset
from kreplica.client.consumer.position_validation import PositionValidator
from kreplica.client.consumer.positions import PartitionState
from kreplica.client.consumer.waiters import Waiters
from kreplica.client_core.errors import ClientError, ConsumerClosed, OffsetOutOfRange
from kreplica.client_core.offsets import CommittedOffset
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.runtime.time_slice import TimeSlice

T = TypeVar("T")


class ConsumeFlow:
    """Connects position validation, fetching and delivery.

    :ivar states: assigned partitions, in the order in which they are fetched.
    :ivar changed: notified when records may be available or the flow has ended.
    :ivar progressed: notified when delivered records have been processed.
    :ivar is_processing_revoked: delivered records of revoked partitions are still being processed.
    :ivar time_slice: limits the time for which a consumer occupies the reactor.
    :ivar error: the error that ended the flow.
    :ivar closing: the consumer is closing.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        committed: Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, CommittedOffset]]],
    ) -> None:
        self._options = options
        self.reactor = cluster.runtime.reactor
        self.states: dict[TopicPartition, PartitionState] = {}
        self.changed = Waiters(self.reactor)
        self.progressed = Waiters(self.reactor)
        self.error: Exception | None = None
        self.closing = self.closed = self.is_processing_revoked = False
        self._blocked: list[PartitionState] = []
        self.delivery = DeliveryQueue(self.pump, self._failed)
        self._validator = PositionValidator(
            cluster, options, committed=committed, on_failed=self._failed, on_validated=self._validated
        )
        self._fetcher = Fetcher(
            cluster,
            options,
            self.states,
            self._validator,
            on_arrived=self.delivery.enqueue,
            on_failed=self._failed,
            on_changed=self.changed.notify,
        )
        self.time_slice = TimeSlice(self.reactor)

    async def close(self) -> None:
        """End the flow and notify the waiters."""
        self.closed = True
        self.drop(list(self.states))
        self._validator.close()
        await self._fetcher.close()
        self.changed.notify()
        self.progressed.notify()

    def pump(self) -> None:
        """Send Fetch requests."""
        self._fetcher.pump()

    # --- partitions ---

    def add(self, states: Iterable[PartitionState]) -> None:
        """Add partitions."""
        for state in states:
            self.states[state.key] = state
            if self.is_processing_revoked:
                # A transaction with records delivered earlier may still change the committed start offset.
                state.is_validating = True
                self._blocked.append(state)
        self.pump()

    def drop(self, keys: Iterable[TopicPartition]) -> None:
        """Remove partitions."""
        for key in keys:
            state = self.states.pop(key, None)
            if state is not None:
                self.is_processing_revoked = self.is_processing_revoked or state.has_unprocessed
                state.put_back()
                state.buffer.clear()
                state.is_unassigned = True
        self.pump()

    def pause(self, keys: Iterable[TopicPartition]) -> None:
        """Stop delivering and fetching the records of partitions."""
        for state in self._find(keys):
            state.put_back()
            state.is_paused = True

    def resume(self, keys: Iterable[TopicPartition]) -> None:
        """Resume delivery of the records of paused partitions."""
        for state in self._find(keys):
            state.is_paused = False
            if not state.buffer.is_empty or state.error is not None:
                self.delivery.enqueue(state)
        self.pump()
        self.changed.notify()

    def stop_for_revocation(self, keys: Iterable[TopicPartition]) -> None:
        """Stop delivering the records of partitions that are being revoked."""
        for state in self._find(keys):
            state.put_back()
            state.is_revoking = True

    def has_unprocessed(self, key: TopicPartition) -> bool:
        """Return True if some delivered records of a partition have not been processed yet."""
        state = self.states.get(key)
        return state is not None and state.has_unprocessed

    def begin_at(self, key: TopicPartition, offset: int) -> None:
        """Reset a partition to an offset."""
        self.find(key).begin_at(offset)
        self.pump()

    def find(self, key: TopicPartition) -> PartitionState:
        """Return an assigned partition.

        :raise ValueError: the partition is not assigned.
        """
        return self._find([key])[0]

    def _find(self, keys: Iterable[TopicPartition]) -> list[PartitionState]:
        try:
            return [self.states[key] for key in keys]
        except KeyError as error:
            raise ValueError(f"{error.args[0]} is not assigned to this consumer") from None

    # --- delivery ---

    async def take(self, take: Callable[[], T | None], timeout_s: float | None = None) -> T | None:
        """Wait for the next result; return None after the timeout or if the consumer is closed.

        :param timeout_s: None means no timeout.
        :raise Exception: the consumer or a partition failed.
        """
        self.mark_processed()
        if self.time_slice.is_over:
            await self.time_slice.next()  # lets other tasks of the reactor run
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
        """Return the next result if one is available; otherwise return None.

        :raise Exception: the consumer or a partition failed.
        """
        if self.error is not None:
            raise self.error
        return take()

    def mark_processed(self) -> None:
        """Mark delivered records as processed."""
        self.delivery.mark_processed()
        self.finish_revoked()
        self.progressed.notify()

    def finish_revoked(self) -> None:
        """Record that all delivered records of revoked partitions have been processed."""
        if self.is_processing_revoked:
            self.is_processing_revoked = False
            blocked, self._blocked = self._blocked, []
            for state in blocked:
                state.is_validating = False
            self.pump()

    def check_open(self) -> None:
        """Raise an error if the consumer is closed.

        :raise ConsumerClosed: the consumer is closed.
        """
        if self.closed:
            raise ConsumerClosed("the consumer is closed")

    # --- failures ---

    def fail(self, error: Exception) -> None:
        """Fail the consumer."""
        self.error = error
        self.changed.notify()

    def _validated(self) -> None:
        self.pump()
        self.changed.notify()

    def _failed(self, state: PartitionState, error: ClientError) -> None:
        if isinstance(error, OffsetOutOfRange) and self._options.offset_reset is not OffsetReset.FAIL:
            if state.buffer.is_empty and state.cursor is None and not state.is_busy:
                self._validator.reset(state, error)
            else:
                self._fetcher.back_off(state, error)  # records that were fetched earlier are delivered first
            return
        if not error.retriable:
            state.error = error
        self._fetcher.back_off(state, error)
        if state.error is not None:
            self.delivery.enqueue(state)
