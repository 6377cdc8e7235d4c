"""The seam to work that blocks: fsync, cold reads, SQLite.  The simulator runs it on virtual time instead."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

P = ParamSpec("P")
T = TypeVar("T")


class Offload(Protocol):
    """Runs functions away from the reactor, so that nothing blocks it for more than a few milliseconds."""

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Call it elsewhere; the answer comes back on the reactor.  Two calls may run at the same time."""

    def stop(self) -> None:
        """Wait for what runs, then take no more."""


class ThreadOffload:
    """An ``Offload`` of a few threads of its own (not the reactor's pool, which DNS look-ups share).

    Threads start when they are first needed and are stopped by ``stop``.
    """

    def __init__(self, reactor: Any, threads_max: int = 4, name: str = "offload") -> None:
        self._reactor = reactor
        self._pool = ThreadPool(0, threads_max, name=name)
        self._pool.start()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return deferToThreadPool(self._reactor, self._pool, function, *args, **kwargs)

    def stop(self) -> None:
        self._pool.stop()


def let_others_run() -> None:
    """To be called now and then by what computes long in a thread.

    The interpreter takes its lock from a thread only after 5 ms, and the reactor wants it again after each thing that
    it does with a socket.
    """
    time.sleep(0)
