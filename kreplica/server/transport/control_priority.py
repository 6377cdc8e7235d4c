"""Lets connections of the control plane go before those that carry data, under any backlog (KIP-291)."""

from __future__ import annotations

import select
from collections.abc import Callable
from socket import socket
from typing import Any

from twisted.logger import Logger

log = Logger()

LOOK_S = 0.001
"""Between two looks at the control connections."""


class ControlFirst:
    """Asked before any data connection is read: whatever waits on a control connection is served then.

    One ``poll`` of the few control sockets costs a microsecond or two, which small requests would feel: so they are
    looked at a thousand times a second at most, and wait no longer than that behind data.

    :param seconds: the reactor's clock.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._looked_s = -LOOK_S
        self._poll = select.poll()
        self._transports: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._transports)

    def add(self, transport: Any) -> None:
        """Serve it first.  A simulated socket is no descriptor: there the order of events is drawn anyway."""
        if isinstance(transport.socket, socket):
            self._poll.register(transport.socket, select.POLLIN)
            self._transports[transport.socket.fileno()] = transport

    def remove(self, transport: Any) -> None:
        """Before its socket closes."""
        if isinstance(transport.socket, socket) and self._transports.pop(transport.socket.fileno(), None) is not None:
            self._poll.unregister(transport.socket)

    def serve(self) -> None:
        """Read every control connection that has something, once each, where nobody has looked just now.

        An end or an error is left to the reactor, which meets it again in this very turn.
        """
        now_s = self._seconds()
        if now_s - self._looked_s < LOOK_S:
            return
        self._looked_s = now_s
        for descriptor, _ in self._poll.poll(0):
            transport = self._transports.get(descriptor)
            if transport is not None and transport.is_reading:
                try:
                    transport.doRead()
                except Exception:
                    # Not the fault of the data connection on whose turn this happens.
                    log.failure("reading from {transport!r} failed", transport=transport)
                    transport.abort()
