"""Reader and writer notifications of simulated sockets, level-triggered like epoll's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import error

from kreplica.testing.simulator.scheduler import Process, Scheduler
from kreplica.testing.simulator.sockets import SimulatedSocket


class WatchedDescriptor:
    """A descriptor that is registered with a reactor as reader, writer or both, and its socket.

    :param disconnect: called with the descriptor, the error of its read or write, and True for a read.
    :param log_failure: called while an unexpected error is handled.
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
        connection.on_ready = self._on_socket_ready

    def wake(self) -> None:
        """Schedule a read or write as a separate event if the socket is ready."""
        connection = self._connection
        if not self._is_woken and ((self.reads and connection.readable) or (self.writes and connection.writable)):
            self._is_woken = True
            self._scheduler.post(self._process, 0.0, self._dispatch)

    def _on_socket_ready(self) -> None:
        connection = self._connection
        if not self._is_woken and ((self.reads and connection.readable) or (self.writes and connection.writable)):
            self._is_woken = True
            self._scheduler.follow(self._process, self._dispatch)

    def _dispatch(self) -> None:
        self._is_woken = False
        connection, descriptor = self._connection, self.descriptor
        reason: BaseException | None = None
        is_read = False
        try:
            if self.reads and connection.readable:
                is_read = True
                reason = descriptor.doRead()
            if not reason and self.writes and connection.writable:
                is_read = False
                has_failed = connection.failed and descriptor.connected
                reason = error.ConnectionLost() if has_failed else descriptor.doWrite()
        except Exception as caught:
            reason = caught
            self._log_failure()
        if reason:
            self._disconnect(descriptor, reason, is_read)
        self.wake()
