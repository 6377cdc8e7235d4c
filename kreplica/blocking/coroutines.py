"""Runs coroutines of the client core without an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends and return its result.

    :raise RuntimeError: the coroutine suspended, because it awaited something other than ``BlockingCore``'s methods.
    """
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} suspended in the blocking client")
