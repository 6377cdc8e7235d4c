"""Receives data directly into a buffer, without a copy, which Twisted's transports do not support.

Short data is passed directly to the protocol.  This bypasses the transport's methods and the wrapper protocol of the
endpoint, and so saves four calls for each response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import tcp
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST


def receive_in_place(
    transport: Any,
    next_buffer: Callable[[], memoryview | None],
    on_filled: Callable[[int], None],
    on_data: Callable[[bytes], None],
) -> None:
    """Make a plain TCP transport receive into the buffers of ``next_buffer``; other transports are unchanged.

    :param next_buffer: returns a buffer with free space, or None if received data should be passed to ``on_data``.
    :param on_filled: called with the number of bytes received into the buffer.
    """
    if not isinstance(transport, tcp.Connection) or transport.TLS:
        return

    def receive() -> ConnectionLost | ConnectionDone | None:
        buffer = next_buffer()
        try:
            if buffer is None:
                data = transport.socket.recv(transport.bufferSize)
                size = len(data)
            else:
                size = transport.socket.recv_into(buffer)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not size:
            return CONNECTION_DONE
        if buffer is None:
            on_data(data)
        else:
            on_filled(size)
        return None

    transport.doRead = receive  # type: ignore[method-assign]
