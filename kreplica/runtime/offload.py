"""Threads for blocking work such as fsync and cold reads; the simulator runs it in virtual time instead."""

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
    """Runs functions that would block the reactor for more than a few milliseconds."""

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Call a function in a thread; the Deferred fires on the reactor. Calls may run concurrently."""

    def stop(self) -> None:
        """Wait for running calls; accept no new ones."""


class ThreadOffload:
    """An ``Offload`` with its own thread pool, because the reactor's pool is shared with DNS lookups.

    Threads start on demand and end with ``stop``.
    """

    def __init__(self, reactor: Any, threads_max: int = 4, name: str = "offload") -> None:
        self._reactor = reactor
        self._pool = ThreadPool(0, threads_max, name=name)
        self._pool.start()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return deferToThreadPool(self._reactor, self._pool, function, *args, **kwargs)

    def stop(self) -> None:
        self._pool.stop()


def release_gil() -> None:
    """Yield the interpreter lock; call it regularly in long computations in a thread.

    Otherwise the thread keeps the lock for 5 ms, and the reactor waits for it after each system call.
    """
    time.sleep(0)
