"""Backoff and deadline of a retried operation."""

from __future__ import annotations

from random import Random

from kreplica.client_core.backoff import backoff_s
from kreplica.client_core.errors import ClientError, GaveUp
from kreplica.client_core.options import ClientOptions


class RetrySchedule:
    """Delays between the attempts of one operation until its deadline.

    :param now_s: monotonic time at the start of the operation.
    :param timeout_s: time limit of the operation, including delays; by default, the option ``operation_timeout_s``.
    """

    def __init__(self, options: ClientOptions, random: Random, now_s: float, timeout_s: float | None = None) -> None:
        self._options = options
        self._random = random
        self._timeout_s = options.operation_timeout_s if timeout_s is None else timeout_s
        self._deadline_s = now_s + self._timeout_s
        self._attempts = 0

    def delay_s(self, error: ClientError, now_s: float) -> float:
        """Return the delay before the next attempt, in seconds.

        :param error: the error of the last attempt.
        :raise GaveUp: the next attempt would start after the deadline.
        """
        options = self._options
        self._attempts += 1
        delay_s = backoff_s(self._random, self._attempts, options.backoff_s, options.backoff_s_max)
        if now_s + delay_s >= self._deadline_s:
            raise GaveUp(f"gave up after {self._timeout_s:g} s and {self._attempts} attempts: {error}") from error
        return delay_s
