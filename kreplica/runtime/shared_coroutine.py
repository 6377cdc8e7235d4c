"""A coroutine with several waiters."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

T = TypeVar("T")


class SharedCoroutine(Generic[T]):
    """Runs a coroutine once and passes its result to all waiters.

    When the last waiter is cancelled, so is the coroutine.

    :ivar is_over: True when the coroutine has returned or raised.
    """

    def __init__(self, work: Coroutine[Deferred[Any], Any, T]) -> None:
        self.is_over = False
        self._waiting: dict[Deferred[T], None] = {}
        self._outcome: T | Failure | None = None
        self._coroutine = Deferred.fromCoroutine(work)
        self._coroutine.addBoth(self._on_end)

    def wait(self) -> Deferred[T]:
        """Return a Deferred with the result or the exception of the coroutine."""
        waiter: Deferred[T] = Deferred(self._waiter_cancelled)
        if self.is_over:
            self._resolve(waiter)
        else:
            self._waiting[waiter] = None
        return waiter

    def cancel(self) -> None:
        """Cancel the coroutine; all waiters fail with ``CancelledError``."""
        self._coroutine.cancel()

    def _waiter_cancelled(self, waiter: Deferred[T]) -> None:
        self._waiting.pop(waiter, None)
        if not self._waiting and not self.is_over:
            self._coroutine.cancel()

    def _on_end(self, outcome: T | Failure) -> None:
        self.is_over, self._outcome = True, outcome
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.called:
                self._resolve(waiter)

    def _resolve(self, waiter: Deferred[T]) -> None:
        outcome = self._outcome
        if not isinstance(outcome, Failure):
            waiter.callback(outcome)  # type: ignore[arg-type]
        elif outcome.check(CancelledError):
            waiter.errback(CancelledError())
        else:
            waiter.errback(outcome.value)
