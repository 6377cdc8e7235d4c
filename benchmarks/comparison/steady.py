"""The highest steady rate of each system; all systems are loaded at shares of the lowest of these rates."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.driver import Measurement

FIRST_RATE, RATE_MAX = 5000, 1_280_000
HALVINGS = 3
P99_MS_MAX = 100.0
"""A rate is steady if the 99th percentile of the end-to-end latency stays below this: queues do not grow."""


class MaximumRates:
    """Highest steady rate of each system, by number of brokers.

    Systems are compared at the same rates, which are shares of the maximum of the slowest system.
    """

    def __init__(self) -> None:
        self._rates: dict[int, dict[str, int]] = {}

    def has(self, brokers: int, system: str) -> bool:
        return system in self._rates.get(brokers, {})

    def add(self, brokers: int, system: str, records_per_s: int) -> None:
        self._rates.setdefault(brokers, {})[system] = records_per_s

    def shared(self, brokers: int) -> int:
        """Return the maximum of the slowest system.

        :raise KeyError: no system was measured with this number of brokers.
        """
        return min(self._rates[brokers].values())


def highest_rate(run: Callable[[int], Measurement | None]) -> int:
    """Return the highest steady rate in records per second, by doubling the rate and then bisecting.

    :param run: measures latency for one second at a rate; returns None if the client could not send that fast.
    :raise RuntimeError: even the first rate is not steady.
    """
    low, high = 0, FIRST_RATE
    while high <= RATE_MAX and _is_steady(run(high)):
        low, high = high, 2 * high
    if not low:
        raise RuntimeError(f"{FIRST_RATE} records/s are not steady: p99 is above {P99_MS_MAX:g} ms")
    for _ in range(HALVINGS):
        middle = (low + high) // 2
        if _is_steady(run(middle)):
            low = middle
        else:
            high = middle
    return low


def _is_steady(got: Measurement | None) -> bool:
    return got is not None and got.load["p99_us"] / 1000 <= P99_MS_MAX
