"""Flush scope: responses that complete within it are sent together when it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.logger import Logger

from kreplica.runtime import Reactor
from kreplica.runtime.slices import Slices

log = Logger()


class Flushable(Protocol):
    """A connection with unsent responses."""

    def flush(self) -> None:
        """Send the responses; must not raise."""


class FlushScope:
    """Context manager that batches the responses of each connection into one system call.

    All connections of a server share it.  An inner scope is part of the outer one.  Outside of a scope a response is
    sent at once.

    Responses that complete in callbacks of ``at_end`` are sent first: a consumer or follower has waited for them, while
    the client of this read has only just sent its request.  Each send wakes another process, which delays the other
    responses if there are few cores.

    :ivar slices: scheduler of work that would occupy the event loop for too long.
    """

    __slots__ = ("_at_end", "_before_end", "_depth", "_reactor", "_unflushed", "slices")

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self.slices = Slices(reactor)
        self._depth = 0
        self._unflushed: list[Flushable] = []
        self._at_end: list[Callable[[], object]] = []
        self._before_end: list[Callable[[], object]] = []

    def add(self, connection: Flushable) -> None:
        """Flush a connection when the scope ends, or at once outside of a scope."""
        if self._depth:
            self._unflushed.append(connection)
        else:
            connection.flush()

    def before_end(self, callback: Callable[[], object]) -> None:
        """Run a callback when the scope ends, before those of ``at_end``; must be called within a scope.

        :param callback: must not raise.
        """
        self._before_end.append(callback)

    @property
    def is_open(self) -> bool:
        """True within a scope."""
        return self._depth > 0

    def at_end(self, callback: Callable[[], object]) -> None:
        """Run a callback after all requests of the scope are handled, before its responses are sent.

        The purgatory completes requests in such a callback, so it does so once per scope, and their responses are sent
        with all others.  A callback added outside of a scope, or by another callback, runs at the end of the next
        scope, which starts in the next reactor iteration at the latest.
        """
        self._at_end.append(callback)
        if not self._depth:
            self._schedule()

    def __enter__(self) -> FlushScope:
        self._depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        if self._depth == 1:
            while self._before_end:
                self._before_end.pop()()
            if self._at_end:
                of_this_read = self._unflushed
                self._unflushed = []
                self._run_at_end()
                self._unflushed += of_this_read
        self._depth -= 1
        if not self._depth and self._unflushed:
            unflushed, self._unflushed = self._unflushed, []
            for connection in unflushed:
                connection.flush()

    def _run_at_end(self) -> None:
        callbacks, self._at_end = self._at_end, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.failure("{callback!r} failed at the end of a flush scope", callback=callback)
        if self._at_end:
            self._schedule()

    def _schedule(self) -> None:
        self._reactor.callLater(0, self._run)

    def _run(self) -> None:
        with self:
            pass
