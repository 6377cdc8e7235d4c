"""Counts the records in committed, aborted and open transactions, from the markers in the log.

A log is read in independent slices. A transaction can begin in one slice and end in a later one: the records after a
producer's last marker in a slice belong to its first marker in a later slice. Therefore slices are merged in offset
order.
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
        """Return the sum of two amounts."""
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
    _before_first_marker: dict[int, tuple[Amount, bool]] = field(default_factory=dict)
    """Records before the first marker of each producer, and True if that marker commits."""
    _after_last_marker: dict[int, Amount] = field(default_factory=dict)
    """Records after the last marker of each producer."""

    def add(self, header: BatchHeader) -> None:
        """Add the next batch of transactional records."""
        amount = Amount(header.record_count, header.size)
        unmarked = self._after_last_marker.get(header.producer_id, NOTHING)
        self._after_last_marker[header.producer_id] = unmarked.plus(amount)

    def add_marker(self, header: BatchHeader, batch: memoryview) -> None:
        """Add the next control batch."""
        marker = next((found for record in iter_records(batch) if (found := parse_end_marker(record))), None)
        if marker is not None:
            self.markers += 1
            self._apply_marker(header.producer_id, marker.committed)

    def _apply_marker(self, producer: int, committed: bool) -> None:
        amount = self._after_last_marker.pop(producer, NOTHING)
        if producer not in self._before_first_marker:
            self._before_first_marker[producer] = (amount, committed)
        else:
            self._add_outcome(amount, committed)

    def _add_outcome(self, amount: Amount, committed: bool) -> None:
        if committed:
            self.committed = self.committed.plus(amount)
        else:
            self.aborted = self.aborted.plus(amount)

    def merge(self, following: Transactions) -> None:
        """Merge the following offset range."""
        self.committed = self.committed.plus(following.committed)
        self.aborted = self.aborted.plus(following.aborted)
        self.markers += following.markers
        for producer, (amount, committed) in following._before_first_marker.items():
            self._after_last_marker[producer] = self._after_last_marker.get(producer, NOTHING).plus(amount)
            self._apply_marker(producer, committed)
        for producer, amount in following._after_last_marker.items():
            self._after_last_marker[producer] = self._after_last_marker.get(producer, NOTHING).plus(amount)

    def totals(self) -> tuple[Amount, Amount, Amount]:
        """Return the committed, aborted and open amounts of a whole partition."""
        committed, aborted, still_open = self.committed, self.aborted, NOTHING
        for amount, is_committed in self._before_first_marker.values():
            if is_committed:
                committed = committed.plus(amount)
            else:
                aborted = aborted.plus(amount)
        for amount in self._after_last_marker.values():
            still_open = still_open.plus(amount)
        return committed, aborted, still_open
