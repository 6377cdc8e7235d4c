"""A result that is computed on demand and reused for some time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred

from kreplica.runtime import Reactor
from kreplica.runtime.shared_coroutine import SharedCoroutine

T = TypeVar("T")


class ReusedResult(Generic[T]):
    """The last result of a coroutine; concurrent callers share one run of it, and errors are not reused.

    :param reuse_s: time for which a result is reused, from the start of its computation, in seconds.
    """

    def __init__(self, reactor: Reactor, reuse_s: float) -> None:
        self._reactor = reactor
        self._reuse_s = reuse_s
        self._last: tuple[float, T] | None = None
        self._running: SharedCoroutine[T] | None = None

    async def current(self, compute: Callable[[], Coroutine[Deferred[Any], Any, T]]) -> T:
        """Return the last result, or compute a new one if it is old."""
        if self._last is not None and self._reactor.seconds() - self._last[0] < self._reuse_s:
            return self._last[1]
        if self._running is None or self._running.is_over:
            self._running = SharedCoroutine(self._compute(compute))
        return await self._running.wait()

    async def _compute(self, compute: Callable[[], Coroutine[Deferred[Any], Any, T]]) -> T:
        started_s = self._reactor.seconds()
        result = await compute()
        self._last = started_s, result
        return result
