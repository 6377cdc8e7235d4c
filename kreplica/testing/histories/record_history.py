"""What clients were told, and whether a log keeps to it.  What they were told is besides noted for ``anomalies``.

Values are ``PARTITION/NUMBER`` with some filling, numbers counting up in the order of sending: what is lost, there
twice or out of order shows by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

from kreplica.testing.anomalies import ClientHistory
from kreplica.testing.anomalies.history import NO_OFFSET
from kreplica.wire.records import Record


class Listener(Protocol):
    """Whoever is to know what the clients of one topic do and are told; it also says what producers write."""

    def next_value(self, partition: int, size: int) -> bytes:
        """The next value to send, of at least so many bytes, unlike any other."""

    def sending(self, producer: str, partition: int, values: Sequence[bytes]) -> int:
        """A producer sends a batch for the first time.

        :return: by which ``acknowledged`` knows it.
        """

    def acknowledged(self, partition: int, base_offset: int, values: Sequence[bytes], number: int) -> None:
        """A producer was told that these are in the log, from that offset on; -1 where it was not told where."""

    def read(self, partition: int, records: Sequence[Record], consumer: str) -> None:
        """A consumer was given these."""

    def sought(self, partition: int, offset: int, consumer: str) -> None:
        """A consumer set its position."""


class History:
    """Filled by clients while they run; one topic.

    :param clock: seconds, for what is told of anomalies; one that stands still unless given.
    :ivar told: what ``anomalies`` looks through.
    :ivar acked: partition -> offset -> value, as the producer was told.
    :ivar seen: the same, as any consumer read it.
    :ivar contradictions: where something else was told of an offset than before, as sentences.
    """

    def __init__(self, partitions: int = 1, clock: Callable[[], float] = float) -> None:
        self.told = ClientHistory()
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
        """The next value to send, of at least so many bytes."""
        number = self.sent[partition]
        self.sent[partition] += 1
        return (b"%d/%d " % (partition, number)).ljust(size, b".")

    def sending(self, producer: str, partition: int, values: Sequence[bytes]) -> int:
        """A producer sends a batch for the first time.

        :return: by which ``acknowledged`` knows it.
        """
        return self.told.sending(producer, partition, values, self._clock())

    def acknowledged(
        self, partition: int, base_offset: int, values: Sequence[bytes], number: int | None = None
    ) -> None:
        """A producer was told that these are in the log, from that offset on; -1 where it was not told where.

        :param number: of the sending, where it was told of.
        """
        if number is None:
            number = self.sending("producer", partition, values)
        self.told.acknowledged(number, base_offset, self._clock())
        if base_offset == NO_OFFSET:
            return
        for offset, value in enumerate(values, base_offset):
            self._note(self.acked[partition], offset, value, f"acknowledged in partition {partition}")
        self._acked_ends[partition] = max(self._acked_ends[partition], base_offset + len(values))

    def read(self, partition: int, records: Sequence[Record], consumer: str = "consumer") -> None:
        """A consumer was given these."""
        given = [(record.offset, record.value or b"") for record in records]
        self.told.polled(consumer, partition, given, self._clock())
        for offset, value in given:
            self._note(self.seen[partition], offset, value, f"read from partition {partition}")
            self._seen_ends[partition] = max(self._seen_ends[partition], offset + 1)

    def sought(self, partition: int, offset: int, consumer: str) -> None:
        """A consumer set its position."""
        self.told.sought(consumer, partition, offset, self._clock())

    def ends(self, partition: int) -> tuple[int, int]:
        """The first offset beyond all that was acknowledged, and beyond all that was read."""
        return self._acked_ends[partition], self._seen_ends[partition]

    def _note(self, known: dict[int, bytes], offset: int, value: bytes, what: str) -> None:
        before = known.setdefault(offset, value)
        if before != value:
            self.contradictions.append(f"{value[:20]!r} was {what} at {offset}, where {before[:20]!r} was before")

    def forget_from(self, partition: int, offset: int) -> None:
        """The log was cut there: what was told of later offsets holds no more."""
        self.told.forget_from(partition, offset)
        for told in (self.acked[partition], self.seen[partition]):
            for later in [known for known in told if known >= offset]:
                del told[later]


def check_whole(records: Sequence[Record], partition: int) -> None:
    """Whether a log has no hole, nothing twice, and all in the order of sending.

    :raise AssertionError: it has not.
    """
    offsets = [record.offset for record in records]
    assert offsets == list(range(len(offsets))), f"partition {partition} has holes: {offsets[:10]} ..."
    numbers = [number_of(record.value or b"", partition) for record in records]
    for before, after in pairwise(numbers):
        assert before < after, f"partition {partition} has {after} behind {before}"


def check_nothing_lost(records: Sequence[Record], told: dict[int, bytes], what: str) -> None:
    """Whether all that somebody was told is in the log, each at its offset.

    :param what: who was told, for the text of the error.
    :raise AssertionError: it is not.
    """
    values = {record.offset: record.value for record in records}
    for offset, value in told.items():
        assert values.get(offset) == value, (
            f"{value[:20]!r} was {what} at {offset}, where {(values.get(offset) or b'nothing')[:20]!r} is now"
        )


def number_of(value: bytes, partition: int) -> int:
    """The number of a value.

    :raise AssertionError: it is not one that was sent to that partition.
    """
    where, _, number = value.rstrip(b".").partition(b"/")
    assert where == b"%d" % partition, f"{value[:20]!r} was not sent to partition {partition}"
    return int(number)
