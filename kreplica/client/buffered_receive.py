"""Receives data directly into a buffer, without a copy; Twisted's transports do not support this themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import tcp
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST


def receive_in_place(
    transport: Any, next_buffer: Callable[[], memoryview | None], on_filled: Callable[[int], None]
) -> None:
    """Make a plain TCP transport receive into the buffers of ``next_buffer``; other transports are unchanged.

    :param next_buffer: returns a buffer with free space; None: received data goes to the protocol.
    :param on_filled: called with the number of bytes received into the buffer.
    """
    if not isinstance(transport, tcp.Connection) or transport.TLS:
        return
    receive_normally = transport.doRead

    def receive() -> ConnectionLost | ConnectionDone | None:
        buffer = next_buffer()
        if buffer is None:
            return receive_normally()
        try:
            size = transport.socket.recv_into(buffer)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not size:
            return CONNECTION_DONE
        on_filled(size)
        return None

    transport.doRead = receive  # type: ignore[method-assign]
