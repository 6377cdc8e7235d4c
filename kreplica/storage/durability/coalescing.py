"""Work that many ask for and one run serves: whoever asks during a run is served by the next."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

_log = Logger()


class Coalescing:
    """Runs one piece of work, never twice at a time.

    :param work: what to do; an exception ends this series of runs and is logged.
    """

    def __init__(self, work: Callable[[], Coroutine[Deferred[Any], Any, None]]) -> None:
        self._work = work
        self._running = False
        self._wanted = False
        self._waiting: list[Deferred[None]] = []

    def request(self) -> None:
        """Have it done soon."""
        self._wanted = True
        if not self._running:
            self._running = True
            Deferred.fromCoroutine(self._run())

    def idle(self) -> Deferred[None]:
        """Fires when nothing is left to do."""
        done: Deferred[None] = Deferred()
        if self._running:
            self._waiting.append(done)
        else:
            done.callback(None)
        return done

    async def _run(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                await self._work()
        except Exception:
            _log.failure("work on a log directory failed")
        finally:
            self._running = False
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)
