"""Measures how long one log directory's writes in other threads take: syncs of logs, and checkpoints."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred

from kreplica.runtime.offload import Offload

P = ParamSpec("P")
T = TypeVar("T")

RECENT_S = 60.0
"""Maximum age of a measurement."""

_KEPT_MAX = 256
"""Maximum number of kept measurements; a checkpoint is written every few seconds, and syncs of one round count once."""


class DiskTimes:
    """Durations of recent writes.

    :param seconds: the reactor's clock.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._running: dict[Deferred[Any], float] = {}
        """Start times of writes that have not ended."""
        self._ended: deque[tuple[float, float]] = deque(maxlen=_KEPT_MAX)
        """End and duration of each write that has ended, oldest first."""

    def started(self, write: Deferred[T]) -> Deferred[T]:
        """Measure a write that has just started."""
        started_s = self._running[write] = self._seconds()

        def ended(result: Any) -> Any:
            del self._running[write]
            now_s = self._seconds()
            self._ended.append((now_s, now_s - started_s))
            return result

        return write.addBoth(ended)

    @property
    def slowest_s(self) -> float:
        """The longest duration of the last ``RECENT_S``, including writes that have not ended; 0 without a write."""
        now_s = self._seconds()
        while self._ended and now_s - self._ended[0][0] > RECENT_S:
            self._ended.popleft()
        running = (now_s - started_s for started_s in self._running.values())
        return max(*(duration_s for _, duration_s in self._ended), *running, 0.0, 0.0)


class MeasuredOffload:
    """An ``Offload`` whose calls are measured."""

    def __init__(self, offload: Offload, times: DiskTimes) -> None:
        self._offload = offload
        self._times = times

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return self._times.started(self._offload.run(function, *args, **kwargs))

    def stop(self) -> None:
        """Do nothing: the threads belong to the broker."""
