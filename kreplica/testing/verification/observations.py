"""History of the clients of a run, and measurements."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from math import ceil

from kreplica.testing.anomalies import ClientHistory
from kreplica.testing.anomalies.history import NO_OFFSET
from kreplica.wire.records import Record

PADDING = b"."


class Observations:
    """The ``Listener`` of all clients of a run.

    Values are ``PARTITION/NUMBER`` with padding, which is removed for the history.

    :param clock: returns seconds.
    :ivar ends: by partition, the offset after the last acknowledged record.
    :ivar read_count: total number of records that all readers received.
    :ivar latencies_s: latency of each batch, from its first send to its acknowledgement.
    """

    def __init__(self, partitions: int, clock: Callable[[], float]) -> None:
        self.history = ClientHistory()
        self.sent_count = 0
        self.acknowledged_count = 0
        self.acknowledged_bytes = 0
        self.read_count = 0
        self.ends = [0] * partitions
        self.latencies_s = array("d")
        self._clock = clock
        self._numbers = [0] * partitions
        self._started_s = clock()
        self._last_acknowledgement_s = self._started_s
        self._longest_silence_s = 0.0

    def now_s(self) -> float:
        return self._clock() - self._started_s

    # --- Listener ---

    def next_value(self, partition: int, size: int) -> bytes:
        """Return a unique value of at least ``size`` bytes."""
        number = self._numbers[partition]
        self._numbers[partition] += 1
        return (b"%d/%d" % (partition, number)).ljust(size, PADDING)

    def sending(self, producer: str, partition: int, values: Sequence[bytes]) -> int:
        """Record the first send of a batch, and return its number for ``acknowledged``."""
        if self.sent_count == self.acknowledged_count:
            self._last_acknowledgement_s = self._clock()  # no acknowledgement was outstanding
        self.sent_count += len(values)
        return self.history.sending(producer, partition, [_without_padding(value) for value in values], self.now_s())

    def acknowledged(self, partition: int, base_offset: int, values: Sequence[bytes], number: int) -> None:
        """Record the acknowledgement of a batch; its offset is -1 if the response had none."""
        self._longest_silence_s = self.longest_silence_s
        self._last_acknowledgement_s = self._clock()
        self.acknowledged_count += len(values)
        self.acknowledged_bytes += sum(map(len, values))
        self.latencies_s.append(self.now_s() - self.history.sends[number].sent_s)
        self.history.acknowledged(number, base_offset, self.now_s())
        if base_offset != NO_OFFSET:
            self.ends[partition] = max(self.ends[partition], base_offset + len(values))

    def read(self, partition: int, records: Sequence[Record], consumer: str) -> None:
        self.read_count += len(records)
        received = [(record.offset, _without_padding(record.value or b"")) for record in records]
        self.history.polled(consumer, partition, received, self.now_s())

    def sought(self, partition: int, offset: int, consumer: str) -> None:
        self.history.sought(consumer, partition, offset, self.now_s())

    # --- measurements ---

    @property
    def longest_silence_s(self) -> float:
        """Longest time without an acknowledgement while records were unacknowledged."""
        is_waiting = self.sent_count > self.acknowledged_count
        return max(self._longest_silence_s, self._clock() - self._last_acknowledgement_s if is_waiting else 0.0)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile by nearest rank; 0 without values."""
    if not values:
        return 0.0
    return sorted(values)[max(0, ceil(len(values) * percent / 100) - 1)]


def _without_padding(value: bytes) -> bytes:
    return value.rstrip(PADDING)
