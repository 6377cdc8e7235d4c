"""Byte counters that the kernel keeps for each TCP connection, so that the broker need not count."""

from __future__ import annotations

import socket
from struct import Struct
from typing import Any

_COUNTERS = Struct("=120xQQ")
"""``tcpi_bytes_acked`` and ``tcpi_bytes_received`` in Linux's ``struct tcp_info`` (since 4.1)."""


def transferred(transport: Any) -> tuple[int, int] | None:
    """Return the bytes received from a client and those that it has acknowledged; None if they are unknown.

    :param transport: a Twisted transport or protocol; one of the transports below it has the socket.
    """
    while transport is not None:
        sock = getattr(transport, "socket", None)
        if sock is not None:
            return _read(sock)
        transport = getattr(transport, "transport", None)
    return None


def _read(sock: Any) -> tuple[int, int] | None:
    try:
        data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTERS.size)
    except (OSError, AttributeError):
        return None
    if len(data) < _COUNTERS.size:
        return None
    acknowledged, received = _COUNTERS.unpack(data)
    return received, acknowledged
