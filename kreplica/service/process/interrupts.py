"""Handles Ctrl-C before the reactor installs its signal handlers.

Until then, Python raises ``KeyboardInterrupt`` at an arbitrary place; a callback chain or an import hook that catches
all exceptions would swallow it, and the start would continue.
"""

from __future__ import annotations

import signal
from typing import Any


def end_on_interrupt() -> None:
    """Make SIGINT end the process immediately until ``reactor_handles_interrupts`` is called; keep a custom handler."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def reactor_handles_interrupts(reactor: Any) -> None:
    """Make a running reactor stop gracefully on SIGINT; it would not replace an existing handler by itself."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, reactor.sigInt)
