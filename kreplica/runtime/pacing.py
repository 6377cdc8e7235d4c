"""What does not leave the machine is sent at once, whatever congestion control the machine is set to.

BBR, which suits long ways and is the default of many systems, spreads packets over time: each waits for a timer of its
own.  On the way from a process to its neighbour there is nothing to gain by that, and the timers, and the readers who
are woken for every packet, cost more than the sending.  Reno sends what its window allows; every Linux has it, and
everybody may choose it.
"""

from __future__ import annotations

from contextlib import suppress
from socket import IPPROTO_TCP, TCP_CONGESTION
from typing import Any

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def do_without_pacing(one: Any) -> None:
    """Choose a congestion control without timers.

    :param one: a connected socket; or, better, a listening one: its connections never begin with anything else, where
        one that began with BBR keeps some of its timers.
    """
    with suppress(OSError):  # in a sandbox that has only one, or none
        one.setsockopt(IPPROTO_TCP, TCP_CONGESTION, b"reno")
