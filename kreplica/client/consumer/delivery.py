"""Delivers fetched records in batches, round-robin over the partitions that are not paused."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kreplica.client.consumer.positions import PartitionState, RecordCursor
from kreplica.client.consumer.records import ConsumedBatch
from kreplica.client_core.errors import ClientError


class DeliveryQueue:
    """Queue of partitions with fetched records.

    Delivered records are considered processed when the next ones are requested.

    :param on_space_freed: called when a partition's buffer shrinks, so that more records can be fetched.
    :param on_failed: called with a partition whose records cannot be decoded.
    """

    def __init__(
        self, on_space_freed: Callable[[], None], on_failed: Callable[[PartitionState, ClientError], None]
    ) -> None:
        self._on_space_freed = on_space_freed
        self._on_failed = on_failed
        self._ready: deque[PartitionState] = deque()
        self._delivered: list[PartitionState] = []

    def enqueue(self, state: PartitionState) -> None:
        """Queue a partition that has new records or whose delivery can continue."""
        if not (state.is_paused or state.is_revoking or state.is_busy) and state not in self._ready:
            self._ready.append(state)

    def mark_processed(self) -> None:
        """Mark all delivered records as processed."""
        delivered = self._delivered
        for state in delivered:
            if not state.is_unassigned:
                state.mark_processed()
        self._delivered = [state for state in delivered if state.cursor is not None]

    def cursor(self) -> RecordCursor | None:
        """Return a cursor over the next batch, for a consumer that reads records one by one.

        :raise ClientError: a partition failed, after all its records were delivered.
        """
        for state in self._delivered:
            if state.cursor is not None and not state.is_unassigned:
                return state.cursor
        batch = self._take()
        if batch is None:
            return None
        return self._delivered[-1].deliver_one_by_one(batch)

    def batch(self, records_max: int | None = None, *, may_fail: bool = True) -> ConsumedBatch | None:
        """Return the next batch.

        :param records_max: maximum number of records.
        :param may_fail: if False, a partition's error is left for the next call.
        :raise ClientError: a partition failed, after all its records were delivered.
        """
        for state in self._delivered:
            if state.cursor is not None:
                state.put_back()
                self.enqueue(state)
        batch = self._take(may_fail=may_fail)
        if batch is None:
            return None
        state = self._delivered[-1]
        if records_max is not None and len(batch) > records_max:
            batch, remaining = batch.split(records_max)
            state.buffer.put_back(remaining)
            self.enqueue(state)
        state.advance(batch.next_offset, batch.leader_epoch)
        return batch

    def batch_for_handler(self) -> tuple[PartitionState, ConsumedBatch] | None:
        """Return the next batch for a handler, and its partition, which is busy until the handler has completed.

        :raise ClientError: a partition failed, after all its records were delivered.
        """
        batch = self._take()
        if batch is None:
            return None
        state = self._delivered.pop()
        state.advance(batch.next_offset, batch.leader_epoch)
        state.is_busy = True
        return state, batch

    def _take(self, *, may_fail: bool = True) -> ConsumedBatch | None:
        """Return the next batch; its partition is the last of ``_delivered``."""
        while self._ready:
            state = self._ready.popleft()
            if state.is_unassigned or state.is_paused or state.is_revoking or state.is_busy:
                continue  # queued again when this changes
            if state.buffer.is_empty:
                if state.error is not None:
                    if not may_fail:
                        self._ready.append(state)
                        return None
                    error, state.error = state.error, None  # the partition is retried if the caller continues
                    self._on_space_freed()
                    raise error
                continue
            batch = self._decode(state)
            if not state.buffer.is_empty or state.error is not None:
                self._ready.append(state)
            if batch is not None:
                self._delivered.append(state)
                return batch
        return None

    def _decode(self, state: PartitionState) -> ConsumedBatch | None:
        buffered, position = len(state.buffer), state.position
        assert position is not None
        try:
            batch, next_offset = state.buffer.take(position)
        except ClientError as error:
            state.refetch()
            self._on_failed(state, error)
            return None
        if batch is None:
            state.skip(next_offset)
        if len(state.buffer) < buffered:
            self._on_space_freed()
        return batch
