"""Handing out what was fetched: in fair rotation, a batch at a time, and never of a partition that is paused."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kreplica.client.consumer.positions import Handed, Reading
from kreplica.client.consumer.records import ConsumedBatch
from kreplica.client_core.errors import ClientError


class Outlet:
    """What was handed out counts as gone past when the next is asked for.

    :param on_room: called when a partition has less in stock than before: more may be asked for.
    :param on_failed: called with a partition of which something cannot be opened.
    """

    def __init__(self, on_room: Callable[[], None], on_failed: Callable[[Reading, ClientError], None]) -> None:
        self._on_room = on_room
        self._on_failed = on_failed
        self._ready: deque[Reading] = deque()
        self._lent: list[Reading] = []

    def arrived(self, reading: Reading) -> None:
        """A partition has something in stock that it had not, or may be handed out again."""
        if not (reading.is_paused or reading.is_held or reading.is_busy) and reading not in self._ready:
            self._ready.append(reading)

    def gone_past(self) -> None:
        """What was handed out is done with."""
        lent = self._lent
        for reading in lent:
            if not reading.is_over:
                reading.gone_past()
        self._lent = [reading for reading in lent if reading.handed is not None]

    def handed(self) -> Handed | None:
        """The next batch, for somebody who takes record by record.

        :raise ClientError: of a partition that cannot go on, and of which all was handed out.
        """
        for reading in self._lent:
            if reading.handed is not None and not reading.is_over:
                return reading.handed
        batch = self._take()
        if batch is None:
            return None
        return self._lent[-1].lend(batch)

    def batch(self, records_max: int | None = None, *, may_fail: bool = True) -> ConsumedBatch | None:
        """The next batch.

        :param records_max: at most so many records of it.
        :param may_fail: an error is raised, and not left for the next time.
        :raise ClientError: of a partition that cannot go on, and of which all was handed out.
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
            reading.stock.put_back(left)
            self.arrived(reading)
        reading.move(batch.next_offset, batch.leader_epoch)
        return batch

    def work(self) -> tuple[Reading, ConsumedBatch] | None:
        """The next batch, for a handler: nothing else of that partition comes until it is not busy any more.

        :raise ClientError: of a partition that cannot go on, and of which all was handed out.
        """
        batch = self._take()
        if batch is None:
            return None
        reading = self._lent.pop()
        reading.move(batch.next_offset, batch.leader_epoch)
        reading.is_busy = True
        return reading, batch

    def _take(self, *, may_fail: bool = True) -> ConsumedBatch | None:
        """What is next; its reading is the last of those that are lent to."""
        while self._ready:
            reading = self._ready.popleft()
            if reading.is_over or reading.is_paused or reading.is_held or reading.is_busy:
                continue  # comes back when that has changed
            if reading.stock.is_empty:
                if reading.error is not None:
                    if not may_fail:
                        self._ready.append(reading)
                        return None
                    error, reading.error = reading.error, None  # whoever goes on nevertheless has it tried again
                    self._on_room()
                    raise error
                continue
            batch = self._open(reading)
            if not reading.stock.is_empty or reading.error is not None:
                self._ready.append(reading)
            if batch is not None:
                self._lent.append(reading)
                return batch
        return None

    def _open(self, reading: Reading) -> ConsumedBatch | None:
        answers, position = len(reading.stock), reading.position
        assert position is not None
        try:
            batch, behind = reading.stock.take(position)
        except ClientError as error:
            reading.fetch_again()
            self._on_failed(reading, error)
            return None
        if batch is None:
            reading.skip(behind)
        if len(reading.stock) < answers:
            self._on_room()
        return batch
