"""Records that clients sent and received, and checks of a log against them.

Values are ``PARTITION/NUMBER`` with padding; numbers increase in the order of sending, so losses, duplicates and
reordering are visible in the log itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

from kreplica.testing.anomalies import ClientHistory
from kreplica.testing.anomalies.history import NO_OFFSET
from kreplica.wire.records import Record


class Listener(Protocol):
    """Receives the events of one topic's clients, and generates the values that producers send."""

    def next_value(self, partition: int, size: int) -> bytes:
        """Return a new unique value of at least ``size`` bytes."""

    def sending(self, producer: str, partition: int, values: Sequence[bytes]) -> int:
        """Record the first attempt to send a batch.

        :return: the batch's number, for ``acknowledged``.
        """

    def acknowledged(self, partition: int, base_offset: int, values: Sequence[bytes], number: int) -> None:
        """Record an acknowledgement; ``base_offset`` is -1 if the response did not contain the offset."""

    def read(self, partition: int, records: Sequence[Record], consumer: str) -> None: ...

    def sought(self, partition: int, offset: int, consumer: str) -> None: ...


class History:
    """History of one topic, filled by its clients while they run.

    :param clock: returns the time in seconds, shown with anomalies; by default, always 0.
    :ivar observations: history for the checks of ``anomalies``.
    :ivar acked: acknowledged values by offset, for each partition.
    :ivar seen: values that any consumer read, by offset, for each partition.
    :ivar contradictions: descriptions of offsets for which clients received different values.
    """

    def __init__(self, partitions: int = 1, clock: Callable[[], float] = float) -> None:
        self.observations = ClientHistory()
        self.sent = [0] * partitions
        self.acked: list[dict[int, bytes]] = [{} for _ in range(partitions)]
        self.seen: list[dict[int, bytes]] = [{} for _ in range(partitions)]
        self.contradictions: list[str] = []
        self._clock = clock
        self._acked_ends = [0] * partitions
        self._seen_ends = [0] * partitions

    @property
    def acked_count(self) -> int:
        return sum(map(len, self.acked))

    def next_value(self, partition: int, size: int) -> bytes:
        number = self.sent[partition]
        self.sent[partition] += 1
        return (b"%d/%d " % (partition, number)).ljust(size, b".")

    def sending(self, producer: str, partition: int, values: Sequence[bytes]) -> int:
        return self.observations.sending(producer, partition, values, self._clock())

    def acknowledged(
        self, partition: int, base_offset: int, values: Sequence[bytes], number: int | None = None
    ) -> None:
        """Record an acknowledgement.

        :param base_offset: -1 if the response did not contain it.
        :param number: result of ``sending``; None if that was not called.
        """
        if number is None:
            number = self.sending("producer", partition, values)
        self.observations.acknowledged(number, base_offset, self._clock())
        if base_offset == NO_OFFSET:
            return
        for offset, value in enumerate(values, base_offset):
            self._note(self.acked[partition], offset, value, f"acknowledged in partition {partition}")
        self._acked_ends[partition] = max(self._acked_ends[partition], base_offset + len(values))

    def read(self, partition: int, records: Sequence[Record], consumer: str = "consumer") -> None:
        self.received(partition, [(record.offset, record.value or b"") for record in records], consumer)

    def received(
        self, partition: int, records: Sequence[tuple[int, bytes]], consumer: str, *, read_committed: bool = True
    ) -> None:
        """Record offsets and values that a consumer received."""
        self.observations.polled(consumer, partition, records, self._clock(), read_committed=read_committed)
        for offset, value in records:
            self._note(self.seen[partition], offset, value, f"read from partition {partition}")
            self._seen_ends[partition] = max(self._seen_ends[partition], offset + 1)

    def sought(self, partition: int, offset: int, consumer: str) -> None:
        self.observations.sought(consumer, partition, offset, self._clock())

    def ends(self, partition: int) -> tuple[int, int]:
        """Return the end offsets of the acknowledged records and of the records read."""
        return self._acked_ends[partition], self._seen_ends[partition]

    def _note(self, values: dict[int, bytes], offset: int, value: bytes, event: str) -> None:
        first_value = values.setdefault(offset, value)
        if first_value != value:
            self.contradictions.append(f"{value[:20]!r} was {event} at {offset}, but {first_value[:20]!r} before that")

    def forget_from(self, partition: int, offset: int) -> None:
        """Forget all records from an offset at which the log was truncated."""
        self.observations.forget_from(partition, offset)
        for values in (self.acked[partition], self.seen[partition]):
            for removed in [position for position in values if position >= offset]:
                del values[removed]


def check_complete(records: Sequence[Record], partition: int) -> None:
    """Check that a log has no gap and no duplicate, and that its records are in the order of sending.

    :raise AssertionError: a check failed.
    """
    offsets = [record.offset for record in records]
    assert offsets == list(range(len(offsets))), f"partition {partition} has gaps: {offsets[:10]} ..."
    numbers = [number_of(record.value or b"", partition) for record in records]
    for previous, current in pairwise(numbers):
        assert previous < current, f"partition {partition} has {current} after {previous}"


def check_nothing_lost(records: Sequence[Record], expected: dict[int, bytes], event: str) -> None:
    """Check that a log contains the expected values at their offsets.

    :param event: ``acknowledged`` or ``read``, for the message.
    :raise AssertionError: a value is missing.
    """
    values = {record.offset: record.value for record in records}
    for offset, value in expected.items():
        assert values.get(offset) == value, (
            f"{value[:20]!r} was {event} at {offset}, where {(values.get(offset) or b'nothing')[:20]!r} is stored now"
        )


def number_of(value: bytes, partition: int) -> int:
    """Return the number in a value.

    :raise AssertionError: the value was not sent to this partition.
    """
    sent_to, _, number = value.rstrip(b".").partition(b"/")
    assert sent_to == b"%d" % partition, f"{value[:20]!r} was not sent to partition {partition}"
    return int(number)
