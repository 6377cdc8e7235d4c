"""Runs several coroutines concurrently."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults

T = TypeVar("T")


async def gather(coroutines: Iterable[Coroutine[Deferred[Any], Any, T]]) -> list[T]:
    """Return the results of concurrent coroutines, in their order.

    The first exception is raised without Twisted's ``FirstError`` around it, and the other coroutines are cancelled.
    Cancelling this coroutine cancels all of them.
    """
    running = [Deferred.fromCoroutine(coroutine) for coroutine in coroutines]
    try:
        return await gatherResults(running, consumeErrors=True)
    except FirstError as error:
        for other in running:
            other.cancel()
        error.subFailure.raiseException()
        raise
