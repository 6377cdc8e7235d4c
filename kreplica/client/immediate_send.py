"""Sends data within ``write``; Twisted's transports would send it in the next iteration of the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import tcp


def immediate_write(transport: Any) -> Callable[[bytes], None]:
    """Return a ``write`` function that immediately sends as much as the socket of a plain TCP transport accepts.

    This saves two ``epoll_ctl`` calls and one ``epoll_wait`` before each ``send``, but costs one ``send`` per call.

    :return: for other transports, their own ``write`` method.
    """
    if not isinstance(transport, tcp.Connection) or transport.TLS:
        write: Callable[[bytes], None] = transport.write
        return write

    def send(data: bytes) -> None:
        sent: Any = 0
        if transport.connected and not (transport.dataBuffer or transport._tempDataBuffer or transport.disconnecting):
            sent = transport.writeSomeData(data)
        if sent != len(data):
            # The event loop encounters the same error and closes the connection.
            transport.write(data[sent:] if isinstance(sent, int) else data)

    return send
