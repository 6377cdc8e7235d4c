"""Count of records in committed, aborted and open transactions, from the markers in the log.

A log is read in independent slices. Records of a slice before a producer's first marker belong to that marker, and
records after its last marker to a marker of a later slice. Therefore slices are merged in offset order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kreplica.wire.batches import BatchHeader
from kreplica.wire.control_records import parse_end_marker
from kreplica.wire.records import iter_records


class Amount(NamedTuple):
    """Number of records, and size of their batches in the log."""

    records: int = 0
    size_bytes: int = 0

    def plus(self, other: Amount) -> Amount:
        """Return the sum of both."""
        return Amount(self.records + other.records, self.size_bytes + other.size_bytes)


NOTHING = Amount()


@dataclass(slots=True)
class Transactions:
    """Transactions of an offset range of one partition.

    :ivar markers: number of batches that end transactions.
    """

    committed: Amount = NOTHING
    aborted: Amount = NOTHING
    markers: int = 0
    _first: dict[int, tuple[Amount, bool]] = field(default_factory=dict)
    """Records before the first marker of each producer, and whether that marker commits."""
    _behind: dict[int, Amount] = field(default_factory=dict)
    """Records after the last marker of each producer."""

    def add(self, header: BatchHeader) -> None:
        """Add the next batch of transactional records."""
        amount = Amount(header.record_count, header.size)
        self._behind[header.producer_id] = self._behind.get(header.producer_id, NOTHING).plus(amount)

    def add_marker(self, header: BatchHeader, batch: memoryview) -> None:
        """Add the next control batch."""
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
        """Merge the following offset range."""
        self.committed = self.committed.plus(following.committed)
        self.aborted = self.aborted.plus(following.aborted)
        self.markers += following.markers
        for producer, (amount, committed) in following._first.items():
            self._behind[producer] = self._behind.get(producer, NOTHING).plus(amount)
            self._end(producer, committed)
        for producer, amount in following._behind.items():
            self._behind[producer] = self._behind.get(producer, NOTHING).plus(amount)

    def settled(self) -> tuple[Amount, Amount, Amount]:
        """Return committed, aborted and open amounts, if no records precede or follow the range."""
        committed, aborted, still_open = self.committed, self.aborted, NOTHING
        for amount, is_committed in self._first.values():
            if is_committed:
                committed = committed.plus(amount)
            else:
                aborted = aborted.plus(amount)
        for amount in self._behind.values():
            still_open = still_open.plus(amount)
        return committed, aborted, still_open
