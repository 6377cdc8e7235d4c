"""Measures how long each partition has no leader that accepts writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kreplica.testing.designs.layout import Partition


@dataclass(frozen=True, slots=True)
class Outages:
    """Times without a leader during one event, in seconds; 0 if no partition was affected.

    :param affected: number of partitions that had no leader for some time.
    :param left: number of partitions without a leader at the end.
    """

    affected: int = 0
    first_s: float = 0.0
    median_s: float = 0.0
    p99_s: float = 0.0
    last_s: float = 0.0
    left: int = 0


class Availability:
    """Leaders of all partitions, as their brokers see it."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._leaders: dict[Partition, int] = {}
        self._down_since_s: dict[Partition, float] = {}
        self._outages_s: list[float] = []

    def expect(self, partitions: Iterable[Partition]) -> None:
        """Count these partitions as unavailable from now on, until one of their replicas leads."""
        for partition in partitions:
            if partition not in self._leaders:
                self._down_since_s[partition] = self._now_s()

    def opened(self, partition: Partition, broker_id: int) -> None:
        """Record that a broker accepts writes."""
        self._leaders[partition] = broker_id
        since_s = self._down_since_s.pop(partition, None)
        if since_s is not None:
            self._outages_s.append(self._now_s() - since_s)

    def closed(self, partition: Partition, broker_id: int) -> None:
        """Record that a broker no longer accepts writes; ignored if another broker already leads."""
        if self._leaders.get(partition) == broker_id:
            del self._leaders[partition]
            self._down_since_s[partition] = self._now_s()

    def forget(self, partition: Partition) -> None:
        """Forget a deleted partition."""
        self._leaders.pop(partition, None)
        self._down_since_s.pop(partition, None)

    def leader_of(self, partition: Partition) -> int | None:
        return self._leaders.get(partition)

    def take(self) -> Outages:
        """Return the outages that ended since the last call."""
        outages, self._outages_s = sorted(self._outages_s), []
        left = len(self._down_since_s)
        if not outages:
            return Outages(left=left)
        return Outages(
            len(outages) + left, outages[0], _quantile(outages, 0.5), _quantile(outages, 0.99), outages[-1], left
        )


def _quantile(ordered: list[float], fraction: float) -> float:
    return ordered[min(int(len(ordered) * fraction), len(ordered) - 1)]
