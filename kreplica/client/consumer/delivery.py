"""Delivers fetched records batch by batch, in fair rotation, and never of paused partitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kreplica.client.consumer.positions import PartitionState, RecordCursor
from kreplica.client.consumer.records import ConsumedBatch
from kreplica.client_core.errors import ClientError


class DeliveryQueue:
    """Delivered records count as processed when the next ones are requested.

    :param on_room: called when a partition's buffer shrinks, so that more may be fetched.
    :param on_failed: called with a partition whose records cannot be decoded.
    """

    def __init__(self, on_room: Callable[[], None], on_failed: Callable[[PartitionState, ClientError], None]) -> None:
        self._on_room = on_room
        self._on_failed = on_failed
        self._ready: deque[PartitionState] = deque()
        self._lent: list[PartitionState] = []

    def arrived(self, reading: PartitionState) -> None:
        """A partition has new records, or may be delivered again."""
        if not (reading.is_paused or reading.is_held or reading.is_busy) and reading not in self._ready:
            self._ready.append(reading)

    def mark_processed(self) -> None:
        """Mark all delivered records as processed."""
        lent = self._lent
        for reading in lent:
            if not reading.is_over:
                reading.mark_processed()
        self._lent = [reading for reading in lent if reading.handed is not None]

    def handed(self) -> RecordCursor | None:
        """Return the next batch for a consumer that takes records one by one.

        :raise ClientError: a partition failed, after all its records were delivered.
        """
        for reading in self._lent:
            if reading.handed is not None and not reading.is_over:
                return reading.handed
        batch = self._take()
        if batch is None:
            return None
        return self._lent[-1].lend(batch)

    def batch(self, records_max: int | None = None, *, may_fail: bool = True) -> ConsumedBatch | None:
        """Return the next batch.

        :param records_max: maximum number of records.
        :param may_fail: False: leave an error for the next call.
        :raise ClientError: a partition failed, after all its records were delivered.
        """
        for reading in self._lent:
            if reading.handed is not None:
                reading.put_back()
                self.arrived(reading)
        batch = self._take(may_fail=may_fail)
        if batch is None:
            return None
        reading = self._lent[-1]
        if records_max is not None and len(batch) > records_max:
            batch, left = batch.split(records_max)
            reading.buffer.put_back(left)
            self.arrived(reading)
        reading.move(batch.next_offset, batch.leader_epoch)
        return batch

    def work(self) -> tuple[PartitionState, ConsumedBatch] | None:
        """Return the next batch for a handler; the partition is busy until the handler is done.

        :raise ClientError: a partition failed, after all its records were delivered.
        """
        batch = self._take()
        if batch is None:
            return None
        reading = self._lent.pop()
        reading.move(batch.next_offset, batch.leader_epoch)
        reading.is_busy = True
        return reading, batch

    def _take(self, *, may_fail: bool = True) -> ConsumedBatch | None:
        """Return the next batch; its partition is the last of ``_lent``."""
        while self._ready:
            reading = self._ready.popleft()
            if reading.is_over or reading.is_paused or reading.is_held or reading.is_busy:
                continue  # arrives again when that changes
            if reading.buffer.is_empty:
                if reading.error is not None:
                    if not may_fail:
                        self._ready.append(reading)
                        return None
                    error, reading.error = reading.error, None  # a caller that continues retries the partition
                    self._on_room()
                    raise error
                continue
            batch = self._open(reading)
            if not reading.buffer.is_empty or reading.error is not None:
                self._ready.append(reading)
            if batch is not None:
                self._lent.append(reading)
                return batch
        return None

    def _open(self, reading: PartitionState) -> ConsumedBatch | None:
        answers, position = len(reading.buffer), reading.position
        assert position is not None
        try:
            batch, behind = reading.buffer.take(position)
        except ClientError as error:
            reading.refetch()
            self._on_failed(reading, error)
            return None
        if batch is None:
            reading.skip(behind)
        if len(reading.buffer) < answers:
            self._on_room()
        return batch
