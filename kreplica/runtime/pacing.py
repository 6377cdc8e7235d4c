"""Disables TCP pacing on local connections.

BBR, the default congestion control of many systems, paces packets with timers. On the loopback interface this has no
benefit, and the timers and wake-ups cost more than the sending itself. Reno sends as much as its window allows, exists
on every Linux and needs no privilege.
"""

from __future__ import annotations

from contextlib import suppress
from socket import IPPROTO_TCP, TCP_CONGESTION
from typing import Any

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def disable_pacing(sock: Any) -> None:
    """Select a congestion control without pacing.

    :param sock: a listening socket, whose connections inherit the setting, or a connected one; timers that BBR has
        started on a connected socket may continue.
    """
    with suppress(OSError):  # some sandboxes do not offer Reno
        sock.setsockopt(IPPROTO_TCP, TCP_CONGESTION, b"reno")
