"""Ctrl-C before the reactor handles signals.

Until then Python raises ``KeyboardInterrupt`` wherever it is: code that catches everything, such as a callback chain or
an import hook, keeps it, and the process starts as if nothing had happened.
"""

from __future__ import annotations

import signal
from typing import Any


def end_on_interrupt() -> None:
    """Let SIGINT end the process at once until ``reactor_handles_interrupts``; another program's handler stays."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def reactor_handles_interrupts(reactor: Any) -> None:
    """Have a running reactor stop in order on SIGINT, which it leaves alone where it finds another handler."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, reactor.sigInt)
