"""Several coroutines at the same time, as one."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults

T = TypeVar("T")


async def together(coroutines: Iterable[Coroutine[Deferred[Any], Any, T]]) -> list[T]:
    """Run them all; their results in their order.

    The first error is raised as it is (Twisted wraps it), and the others are cancelled; so are all where this is.
    """
    running = [Deferred.fromCoroutine(coroutine) for coroutine in coroutines]
    try:
        return await gatherResults(running, consumeErrors=True)
    except FirstError as error:
        for other in running:
            other.cancel()
        error.subFailure.raiseException()
        raise
