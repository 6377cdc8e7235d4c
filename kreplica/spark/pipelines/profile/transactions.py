"""How many records transactions committed, aborted and left open, by the markers among the batches.

A log is read in slices, each by itself, so what a slice holds before a producer's first marker there is judged by that
marker, and what it holds behind the last one by a marker of a later slice: slices are added up in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kreplica.wire.batches import BatchHeader
from kreplica.wire.control_records import parse_end_marker
from kreplica.wire.records import iter_records


class Amount(NamedTuple):
    """Of records; the size is that of their batches, as they lie in the log."""

    records: int = 0
    size_bytes: int = 0

    def plus(self, other: Amount) -> Amount:
        """Both."""
        return Amount(self.records + other.records, self.size_bytes + other.size_bytes)


NOTHING = Amount()


@dataclass(slots=True)
class Transactions:
    """Of one partition, from an offset to another.

    :ivar markers: batches that end transactions.
    """

    committed: Amount = NOTHING
    aborted: Amount = NOTHING
    markers: int = 0
    _first: dict[int, tuple[Amount, bool]] = field(default_factory=dict)
    """By producer: what stands before its first marker here, and whether that commits."""
    _behind: dict[int, Amount] = field(default_factory=dict)
    """By producer: what stands behind its last marker."""

    def add(self, header: BatchHeader) -> None:
        """The next batch, of records of a transaction."""
        amount = Amount(header.record_count, header.size)
        self._behind[header.producer_id] = self._behind.get(header.producer_id, NOTHING).plus(amount)

    def add_marker(self, header: BatchHeader, batch: memoryview) -> None:
        """The next batch, a control batch."""
        marker = next((found for record in iter_records(batch) if (found := parse_end_marker(record))), None)
        if marker is not None:
            self.markers += 1
            self._end(header.producer_id, marker.committed)

    def _end(self, producer: int, committed: bool) -> None:
        amount = self._behind.pop(producer, NOTHING)
        if producer not in self._first:
            self._first[producer] = (amount, committed)
        else:
            self._settle(amount, committed)

    def _settle(self, amount: Amount, committed: bool) -> None:
        if committed:
            self.committed = self.committed.plus(amount)
        else:
            self.aborted = self.aborted.plus(amount)

    def merge(self, following: Transactions) -> None:
        """Those of the offsets right behind."""
        self.committed = self.committed.plus(following.committed)
        self.aborted = self.aborted.plus(following.aborted)
        self.markers += following.markers
        for producer, (amount, committed) in following._first.items():
            self._behind[producer] = self._behind.get(producer, NOTHING).plus(amount)
            self._end(producer, committed)
        for producer, amount in following._behind.items():
            self._behind[producer] = self._behind.get(producer, NOTHING).plus(amount)

    def settled(self) -> tuple[Amount, Amount, Amount]:
        """Committed, aborted and open, where nothing stands before and nothing behind."""
        committed, aborted, still_open = self.committed, self.aborted, NOTHING
        for amount, is_committed in self._first.values():
            if is_committed:
                committed = committed.plus(amount)
            else:
                aborted = aborted.plus(amount)
        for amount in self._behind.values():
            still_open = still_open.plus(amount)
        return committed, aborted, still_open
