"""One turn of the loop's work: the answers that are completed within it leave together when it ends."""

from __future__ import annotations

from typing import Protocol


class Flushing(Protocol):
    """A connection with answers to send."""

    def flush(self) -> None:
        """Send them.  Raises nothing."""


class Turn:
    """Shared by all connections of a server, so that whoever completes answers on many connections costs each of them
    one system call.  Outside of a turn an answer leaves at once.

    Use it as a context manager; turns do not nest (an inner one counts as part of the outer).
    """

    __slots__ = ("_depth", "_waiting")

    def __init__(self) -> None:
        self._depth = 0
        self._waiting: list[Flushing] = []

    def add(self, connection: Flushing) -> None:
        """Note that a connection has answers to send."""
        if self._depth:
            self._waiting.append(connection)
        else:
            connection.flush()

    def __enter__(self) -> Turn:
        self._depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        self._depth -= 1
        if not self._depth and self._waiting:
            waiting, self._waiting = self._waiting, []
            for connection in waiting:
                connection.flush()
