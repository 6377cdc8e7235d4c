"""Limits on the number of producers whose state is kept, in one log and in all logs of a broker.

A leader rejects the batches of new producers beyond a limit. Removing the state of idle producers instead would let
their retries be appended twice. Followers accept all producers of the leader, so that replicas have the same state.
"""

from __future__ import annotations

from collections.abc import Collection, Sized
from typing import Protocol

from twisted.logger import Logger

from kreplica.errors import ErrorCode, KafkaError
from kreplica.storage.log_config import NO_LIMIT

log = Logger()

PRODUCER_BYTES = 1000
"""Approximate memory of one producer with five batches."""

REJECTION_CODE = ErrorCode.NOT_ENOUGH_REPLICAS
"""The error for batches of rejected producers: nothing was appended, and clients of all versions retry."""


class HasProducers(Protocol):
    """A log."""

    @property
    def producers(self) -> Sized: ...


class ProducerLimits:
    """Producers of all logs of one broker.

    Producers are recounted only when an upper bound reaches the limit, because logs are added and removed.

    :param log_max: maximum number of producers in one log.
    :param broker_max: maximum number of producers in all logs. Beyond it, logs with less than their share of it still
        accept new producers, so that one partition cannot use up the limit.
    :ivar logs: all logs; set by their owner.
    :ivar rejected: number of rejected batches since the start.
    """

    def __init__(self, log_max: int = NO_LIMIT, broker_max: int = NO_LIMIT) -> None:
        self.log_max = log_max
        self.broker_max = broker_max
        self.rejected = 0
        self.logs: Collection[HasProducers] = ()
        self._count_max = 0
        """Upper bound for the number of producers."""
        self._counted_logs = 0
        self._has_removals = False
        self._is_reported = False

    @property
    def count(self) -> int:
        """Number of producers in all logs."""
        return sum(len(log.producers) for log in self.logs)

    def note_added(self, count: int = 1) -> None:
        """Count new producers."""
        self._count_max += count

    def note_removed(self) -> None:
        """Note that producers were removed from a log."""
        self._has_removals = True

    def check(self, log_count: int) -> None:
        """Check that a log may accept a new producer.

        :param log_count: number of producers that the log has.
        :raise KafkaError: ``REJECTION_CODE``.
        """
        if log_count >= self.log_max:
            self._reject(log_count, "kreplica.partition.producer.ids.max", self.log_max)
        elif self._count_max >= self.broker_max:
            if self._has_removals or len(self.logs) != self._counted_logs:
                self._count_max = self.count
                self._counted_logs = len(self.logs)
                self._has_removals = False
            if self._count_max >= self.broker_max and log_count >= self.broker_max // max(len(self.logs), 1):
                self._reject(self._count_max, "kreplica.broker.producer.ids.max", self.broker_max)
            self._is_reported &= self._count_max >= self.broker_max

    def _reject(self, count: int, setting: str, count_max: int) -> None:
        self.rejected += 1
        message = f"{count} producer IDs are kept ({setting}={count_max}); they expire after producer.id.expiration.ms"
        if not self._is_reported:
            self._is_reported = True
            log.warn("rejecting batches of new producers: {message}", message=message)
        raise KafkaError(REJECTION_CODE, message)


UNLIMITED = ProducerLimits()
"""Shared by logs without an owner."""
