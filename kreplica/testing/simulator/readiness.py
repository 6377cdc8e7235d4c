"""Who is told that a socket can be read or written: level-triggered, as epoll has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import error

from kreplica.testing.simulator.scheduler import Process, Scheduler
from kreplica.testing.simulator.sockets import SimulatedSocket


class Watched:
    """A descriptor that wants to read or write, and its socket; of one reactor, from ``addReader`` to ``removeReader``.

    :param disconnect: called with the descriptor, the error of its read or write, and True for a read.
    :param log_failure: called while an unexpected error is handled.
    :ivar reads: whether it is told when there is something to read.
    :ivar writes: whether it is told when there is room to write.
    """

    __slots__ = (
        "_connection",
        "_disconnect",
        "_is_woken",
        "_log_failure",
        "_process",
        "_scheduler",
        "descriptor",
        "reads",
        "writes",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        process: Process,
        descriptor: Any,
        connection: SimulatedSocket,
        disconnect: Callable[[Any, BaseException, bool], None],
        log_failure: Callable[[], None],
    ) -> None:
        self.descriptor = descriptor
        self.reads = False
        self.writes = False
        self._scheduler = scheduler
        self._process = process
        self._connection = connection
        self._disconnect = disconnect
        self._log_failure = log_failure
        self._is_woken = False
        connection.on_ready = self._ready

    def wake(self) -> None:
        """Let it read or write soon, where it can: in a turn of its own."""
        connection = self._connection
        if not self._is_woken and ((self.reads and connection.readable) or (self.writes and connection.writable)):
            self._is_woken = True
            self._scheduler.post(self._process, 0.0, self._go_on)

    def _ready(self) -> None:
        """The kernel has news: the program has nothing to do but to look at them."""
        connection = self._connection
        if not self._is_woken and ((self.reads and connection.readable) or (self.writes and connection.writable)):
            self._is_woken = True
            self._scheduler.follow(self._process, self._go_on)

    def _go_on(self) -> None:
        self._is_woken = False
        connection, descriptor = self._connection, self.descriptor
        why: BaseException | None = None
        in_read = False
        try:
            if self.reads and connection.readable:
                in_read = True
                why = descriptor.doRead()
            if not why and self.writes and connection.writable:
                in_read = False
                failed = connection.failed and descriptor.connected
                why = error.ConnectionLost() if failed else descriptor.doWrite()
        except Exception as caught:
            why = caught
            self._log_failure()
        if why:
            self._disconnect(descriptor, why, in_read)
        self.wake()
