"""Handles Ctrl-C before the reactor installs its signal handlers.

Until then Python raises ``KeyboardInterrupt`` at an arbitrary place; a callback chain or an import hook that catches
everything would swallow it and continue the start.
"""

from __future__ import annotations

import signal
from typing import Any


def end_on_interrupt() -> None:
    """Make SIGINT end the process at once until ``reactor_handles_interrupts`` is called; keep any other handler."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def reactor_handles_interrupts(reactor: Any) -> None:
    """Make a running reactor stop in order on SIGINT; the reactor does not replace an existing handler."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, reactor.sigInt)
