"""Threads of one of several programs in a process; a kill stops them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred, succeed

from kreplica.runtime.hosts.host_reactor import HostReactor
from kreplica.runtime.offload import ThreadOffload

P = ParamSpec("P")
T = TypeVar("T")

THREADS_MAX = 4


class ProgramKilled(Exception):
    """The program was killed before the work started; this error is never reported."""


class HostOffload:
    """An ``Offload`` whose results arrive as events of its host.

    :param real_reactor: reactor of the process, which is notified when the last thread has ended.
    """

    def __init__(self, reactor: HostReactor, real_reactor: Any) -> None:
        self._real_reactor = real_reactor
        self._threads = ThreadOffload(reactor, THREADS_MAX, reactor.name)
        self._running_count = 0
        self._idle: Deferred[None] | None = None
        self._killed = False
        self._lock = Lock()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        return self._threads.run(self._work, partial(function, *args, **kwargs))

    def stop(self) -> None:
        """Do nothing: the threads end with the host, even after a clean stop of the program."""

    def kill(self) -> Deferred[None]:
        """Reject all later calls.

        :return: a Deferred that fires when all running calls have returned; an exiting process waits for them too.
        """
        with self._lock:
            assert not self._killed, "already killed"
            self._killed = True
            if self._running_count:
                self._idle = Deferred()
                return self._idle
        self._threads.stop()
        return succeed(None)

    # --- in a thread ---

    def _work(self, work: Callable[[], T]) -> T:
        with self._lock:
            if self._killed:
                raise ProgramKilled
            self._running_count += 1
        try:
            return work()
        finally:
            with self._lock:
                self._running_count -= 1
                is_last = self._killed and not self._running_count
            if is_last:
                self._real_reactor.callFromThread(self._on_end)

    def _on_end(self) -> None:
        idle, self._idle = self._idle, None
        assert idle is not None
        self._threads.stop()
        idle.callback(None)
