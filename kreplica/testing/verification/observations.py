"""What the clients of a run did and were told, kept for the checks, and measured."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from math import ceil

from kreplica.testing.anomalies import ClientHistory
from kreplica.testing.anomalies.history import NO_OFFSET
from kreplica.wire.records import Record

FILLING = b"."


class Observations:
    """The ``Listener`` of all clients of a run.

    Records are known by ``PARTITION/NUMBER``; where a broker changes the filling behind that, they are not.

    :param clock: seconds.
    :ivar ends: of each partition, the first offset beyond all that was acknowledged.
    :ivar read_count: records that readers were given, all readers together.
    :ivar latencies_s: of each batch, from the first sending to its acknowledgement.
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
        self._began_s = clock()
        self._heard_s = self._began_s
        self._longest_silence_s = 0.0

    def now_s(self) -> float:
        """Seconds since these observations began."""
        return self._clock() - self._began_s

    # --- what clients tell ---

    def next_value(self, partition: int, size: int) -> bytes:
        """The next value to send, of at least so many bytes, unlike any other."""
        number = self._numbers[partition]
        self._numbers[partition] += 1
        return (b"%d/%d" % (partition, number)).ljust(size, FILLING)

    def sending(self, producer: str, partition: int, values: Sequence[bytes]) -> int:
        """A producer sends a batch for the first time.

        :return: by which ``acknowledged`` knows it.
        """
        if self.sent_count == self.acknowledged_count:
            self._heard_s = self._clock()  # nobody owed an acknowledgement
        self.sent_count += len(values)
        return self.history.sending(producer, partition, [_known_by(value) for value in values], self.now_s())

    def acknowledged(self, partition: int, base_offset: int, values: Sequence[bytes], number: int) -> None:
        """A producer was told that these are in the log, from that offset on; -1 where it was not told where."""
        self._longest_silence_s = self.longest_silence_s
        self._heard_s = self._clock()
        self.acknowledged_count += len(values)
        self.acknowledged_bytes += sum(map(len, values))
        self.latencies_s.append(self.now_s() - self.history.sends[number].sent_s)
        self.history.acknowledged(number, base_offset, self.now_s())
        if base_offset != NO_OFFSET:
            self.ends[partition] = max(self.ends[partition], base_offset + len(values))

    def read(self, partition: int, records: Sequence[Record], consumer: str) -> None:
        """A consumer was given these."""
        self.read_count += len(records)
        given = [(record.offset, _known_by(record.value or b"")) for record in records]
        self.history.polled(consumer, partition, given, self.now_s())

    def sought(self, partition: int, offset: int, consumer: str) -> None:
        """A consumer set its position."""
        self.history.sought(consumer, partition, offset, self.now_s())

    # --- measures ---

    @property
    def longest_silence_s(self) -> float:
        """The longest time in which something was to be acknowledged and nothing was, until now."""
        waits = self.sent_count > self.acknowledged_count
        return max(self._longest_silence_s, self._clock() - self._heard_s if waits else 0.0)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed; 0 where there is none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, ceil(len(values) * percent / 100) - 1)]


def _known_by(value: bytes) -> bytes:
    return value.rstrip(FILLING)
