"""Delayed retries that share one timer."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, TypeVar

from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime import Reactor

T = TypeVar("T")


class Retries(Generic[T]):
    """Schedules items for a later time.

    :param due: called with the items that are due, ordered by time.
    """

    def __init__(self, reactor: Reactor, due: Callable[[list[T]], None]) -> None:
        self._reactor = reactor
        self._due = due
        self._heap: list[tuple[float, int, T]] = []
        self._count = 0
        self._call: IDelayedCall | None = None

    def add(self, item: T, delay_s: float) -> None:
        """Schedule an item after a delay in seconds; an item may be scheduled several times."""
        self._count += 1  # orders items with equal times, so that items are never compared
        due_s = self._reactor.seconds() + delay_s
        heappush(self._heap, (due_s, self._count, item))
        if self._call is None:
            self._call = self._reactor.callLater(delay_s, self._run)
        elif due_s < self._call.getTime():
            self._call.reset(delay_s)

    def clear(self) -> None:
        self._heap.clear()
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _run(self) -> None:
        self._call = None
        now_s = self._reactor.seconds()
        due = []
        while self._heap and self._heap[0][0] <= now_s:
            due.append(heappop(self._heap)[2])
        if self._heap:
            self._call = self._reactor.callLater(self._heap[0][0] - now_s, self._run)
        self._due(due)
