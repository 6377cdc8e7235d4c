"""No TCP pacing on local connections.

BBR, the default congestion control of many systems, paces packets with timers. On the loopback interface this gains
nothing, and the timers and wake-ups cost more than the sending itself. Reno sends as much as its window allows, exists
on every Linux and needs no privilege.
"""

from __future__ import annotations

from contextlib import suppress
from socket import IPPROTO_TCP, TCP_CONGESTION
from typing import Any

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def disable_pacing(one: Any) -> None:
    """Select a congestion control without pacing.

    :param one: a listening socket, whose connections inherit the setting, or a connected one, which may keep timers
        that BBR has started.
    """
    with suppress(OSError):  # some sandboxes do not offer Reno
        one.setsockopt(IPPROTO_TCP, TCP_CONGESTION, b"reno")
