"""Coalesces requests for the same work: requests during a run are served by one more run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

_log = Logger()


class Coalescing:
    """Runs one piece of work, never concurrently.

    :param work: the work; an exception is logged and ends this series of runs.
    """

    def __init__(self, work: Callable[[], Coroutine[Deferred[Any], Any, None]]) -> None:
        self._work = work
        self._running = False
        self._requested = False
        self._waiting: list[Deferred[None]] = []

    def request(self) -> None:
        """Request a run."""
        self._requested = True
        if not self._running:
            self._running = True
            Deferred.fromCoroutine(self._run())

    def when_idle(self) -> Deferred[None]:
        """Return a Deferred that fires when no run is pending."""
        done: Deferred[None] = Deferred()
        if self._running:
            self._waiting.append(done)
        else:
            done.callback(None)
        return done

    async def _run(self) -> None:
        try:
            while self._requested:
                self._requested = False
                await self._work()
        except Exception:
            _log.failure("background work on a log directory failed")
        finally:
            self._running = False
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)
