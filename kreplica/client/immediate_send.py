"""Sends data within the call that writes it; Twisted's transports send it in the next iteration of the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import tcp


def immediate_write(transport: Any) -> Callable[[bytes], None]:
    """Return a ``write`` that sends at once what the socket of a plain TCP transport accepts.

    This saves two ``epoll_ctl`` and one ``epoll_wait`` before each send, but takes one send for each call.

    :return: the method ``write`` of other transports.
    """
    if not isinstance(transport, tcp.Connection) or transport.TLS:
        write: Callable[[bytes], None] = transport.write
        return write

    def send(data: bytes) -> None:
        sent: Any = 0
        if transport.connected and not (transport.dataBuffer or transport._tempDataBuffer or transport.disconnecting):
            sent = transport.writeSomeData(data)
        if sent != len(data):
            # After an error, the event loop finds it again and closes the connection.
            transport.write(data[sent:] if isinstance(sent, int) else data)

    return send
