"""One turn of the loop's work: the answers that are completed within it leave together when it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.logger import Logger

from kreplica.runtime import Reactor
from kreplica.runtime.slices import Slices

log = Logger()


class Flushing(Protocol):
    """A connection with answers to send."""

    def flush(self) -> None:
        """Send them.  Raises nothing."""


class Turn:
    """Shared by all connections of a server, so that whoever completes answers on many connections costs each of them
    one system call.  Outside of a turn an answer leaves at once.

    Use it as a context manager; turns do not nest (an inner one counts as part of the outer).

    :ivar slices: scheduler of work that is too long for one turn.
    """

    __slots__ = ("_callbacks", "_depth", "_first", "_reactor", "_waiting", "slices")

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self.slices = Slices(reactor)
        self._depth = 0
        self._waiting: list[Flushing] = []
        self._callbacks: list[Callable[[], object]] = []
        self._first: list[Callable[[], object]] = []

    def add(self, connection: Flushing) -> None:
        """Note that a connection has answers to send."""
        if self._depth:
            self._waiting.append(connection)
        else:
            connection.flush()

    def before_end(self, callback: Callable[[], object]) -> None:
        """Call back, within a turn, when its requests have all been handled, and before those of ``at_end``.

        :param callback: raises nothing.
        """
        self._first.append(callback)

    @property
    def is_open(self) -> bool:
        """Whether this is within a turn."""
        return self._depth > 0

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call back when this turn's requests have all been handled and before its answers leave.

        Waiting requests are woken so: once, however many requests of the turn they waited for, and their answers leave
        with the turn's.  Outside of a turn, and from within such a callback, it is called in a turn of its own, soon.
        """
        self._callbacks.append(callback)
        if not self._depth:
            self._schedule()

    def __enter__(self) -> Turn:
        self._depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        if self._depth == 1:
            while self._first:
                self._first.pop()()
            if self._callbacks:
                self._call_back()
        self._depth -= 1
        if not self._depth and self._waiting:
            waiting, self._waiting = self._waiting, []
            for connection in waiting:
                connection.flush()

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.failure("{callback!r} failed at the end of a turn", callback=callback)
        if self._callbacks:
            self._schedule()

    def _schedule(self) -> None:
        self._reactor.callLater(0, self._run)

    def _run(self) -> None:
        with self:
            pass
