"""Receiving what is long where it is to lie, without a copy: what Twisted's transports have no call for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet import tcp
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST


def receive_in_place(transport: Any, room: Callable[[], memoryview | None], filled: Callable[[int], None]) -> None:
    """Let a transport receive into a buffer whenever there is one; anything but plain TCP stays as it is.

    :param room: gives the buffer, not empty; None: what comes goes to the protocol, as ever.
    :param filled: is told how many bytes were put into it.
    """
    if not isinstance(transport, tcp.Connection) or transport.TLS:
        return
    otherwise = transport.doRead

    def receive() -> ConnectionLost | ConnectionDone | None:
        buffer = room()
        if buffer is None:
            return otherwise()
        try:
            size = transport.socket.recv_into(buffer)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not size:
            return CONNECTION_DONE
        filled(size)
        return None

    transport.doRead = receive  # type: ignore[method-assign]
