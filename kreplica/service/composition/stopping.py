"""Stopping in order: what one part cannot do must not keep the next from stopping."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

log = Logger()


async def stop_all(*steps: Callable[[], Awaitable[None]]) -> None:
    """Do each step, one after the other; one that fails is logged, and the next follows.

    :raise CancelledError: where the whole stop is cancelled.
    """
    for step in steps:
        try:
            await step()
        except CancelledError:
            raise
        except Exception:
            log.failure("stopping: {step} failed", step=getattr(step, "__qualname__", step))
