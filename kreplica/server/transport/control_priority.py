"""Priority of control connections over data connections, whatever the backlog of data (KIP-291)."""

from __future__ import annotations

import select
from collections.abc import Callable
from socket import socket
from typing import Any

from twisted.logger import Logger

log = Logger()

POLL_INTERVAL_S = 0.001
"""Minimum time between two polls of the control connections."""


class ControlPriority:
    """Reads pending requests of control connections before a data connection is read.

    One ``poll`` of the few control sockets takes one or two microseconds, which is noticeable for small requests.  The
    minimum interval limits this cost; a control request waits at most that long behind data.

    :param seconds: the reactor's clock.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._polled_s = -POLL_INTERVAL_S
        self._poll = select.poll()
        self._transports: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._transports)

    def add(self, transport: Any) -> None:
        """Register a control connection.

        Simulated sockets have no file descriptor and are ignored: the simulation chooses the order of events.
        """
        if isinstance(transport.socket, socket):
            self._poll.register(transport.socket, select.POLLIN)
            self._transports[transport.socket.fileno()] = transport

    def remove(self, transport: Any) -> None:
        """Unregister a control connection; must be called before its socket closes."""
        if isinstance(transport.socket, socket) and self._transports.pop(transport.socket.fileno(), None) is not None:
            self._poll.unregister(transport.socket)

    def serve(self) -> None:
        """Read each readable control connection once, unless the last poll was less than ``POLL_INTERVAL_S`` ago.

        End of stream and socket errors are left to the reactor, which finds them again in the same iteration.
        """
        now_s = self._seconds()
        if now_s - self._polled_s < POLL_INTERVAL_S:
            return
        self._polled_s = now_s
        for descriptor, _ in self._poll.poll(0):
            transport = self._transports.get(descriptor)
            if transport is not None and transport.is_reading:
                try:
                    transport.doRead()
                except Exception:
                    # Raising would close the data connection that is about to be read.
                    log.failure("reading from {transport!r} failed", transport=transport)
                    transport.abort()
