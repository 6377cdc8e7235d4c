"""Runs shutdown steps one after another; a failed step does not prevent the next one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.defer import CancelledError
from twisted.logger import Logger

log = Logger()


async def stop_all(*steps: Callable[[], Awaitable[None]]) -> None:
    """Run each step after the previous one; log a failure and continue.

    :raise CancelledError: the shutdown was cancelled.
    """
    for step in steps:
        try:
            await step()
        except CancelledError:
            raise
        except Exception:
            log.failure("stopping: {step} failed", step=getattr(step, "__qualname__", step))
