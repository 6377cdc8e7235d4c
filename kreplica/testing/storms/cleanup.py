"""Collects the garbage of killed processes between storms, never during one.

A collected coroutine runs its ``finally`` clauses. The time of a garbage collection depends on the history of the whole
process, but a storm must depend only on its seed.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def disable_automatic_collection() -> None:
    """Disable automatic garbage collection in this process, and exclude existing objects from later collections."""
    gc.collect()
    gc.freeze()
    gc.disable()


@contextmanager
def deferred_collection() -> Iterator[None]:
    """Disable garbage collection in the block, and run it at the end; errors of collected coroutines are ignored."""
    previous_hook, was_enabled = sys.unraisablehook, gc.isenabled()
    sys.unraisablehook = lambda _: None
    if was_enabled:
        gc.collect()
        gc.disable()
    try:
        yield
    finally:
        gc.collect()
        sys.unraisablehook = previous_hook
        if was_enabled:
            gc.enable()
