"""What killed processes leave behind is thrown away between two storms, not in the middle of one.

A coroutine that is thrown away runs its ``finally`` clauses.  When Python finds a cycle of garbage depends on all that
the process has ever done; a storm depends on its seed alone.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def only_between_storms() -> None:
    """Collect cycles nowhere else in this process from now on, and never look at what is there already."""
    gc.collect()
    gc.freeze()
    gc.disable()


@contextmanager
def burial() -> Iterator[None]:
    """Collect no cycles inside, and all of them at the end; coroutines that protest are not listened to."""
    before, enabled = sys.unraisablehook, gc.isenabled()
    sys.unraisablehook = lambda _: None
    if enabled:
        gc.collect()
        gc.disable()
    try:
        yield
    finally:
        gc.collect()
        sys.unraisablehook = before
        if enabled:
            gc.enable()
