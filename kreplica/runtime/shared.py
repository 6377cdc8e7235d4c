"""Work that several wait for, done once."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

T = TypeVar("T")


class Shared(Generic[T]):
    """A coroutine that is begun when it is made, and whose outcome goes to all who wait.

    Whoever is cancelled leaves; when nobody is left, the work is cancelled.

    :ivar is_over: it has ended, well or not.
    """

    def __init__(self, work: Coroutine[Deferred[Any], Any, T]) -> None:
        self.is_over = False
        self._waiting: dict[Deferred[T], None] = {}
        self._outcome: T | Failure | None = None
        self._working = Deferred.fromCoroutine(work)
        self._working.addBoth(self._ended)

    def wait(self) -> Deferred[T]:
        """Fires with what the coroutine gives, or fails with what it raises."""
        waiter: Deferred[T] = Deferred(self._left)
        if self.is_over:
            self._tell(waiter)
        else:
            self._waiting[waiter] = None
        return waiter

    def cancel(self) -> None:
        """Cancel the work: who waits for it learns that."""
        self._working.cancel()

    def _left(self, waiter: Deferred[T]) -> None:
        self._waiting.pop(waiter, None)
        if not self._waiting and not self.is_over:
            self._working.cancel()

    def _ended(self, outcome: T | Failure) -> None:
        self.is_over, self._outcome = True, outcome
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.called:
                self._tell(waiter)

    def _tell(self, waiter: Deferred[T]) -> None:
        outcome = self._outcome
        if not isinstance(outcome, Failure):
            waiter.callback(outcome)  # type: ignore[arg-type]
        elif outcome.check(CancelledError):
            waiter.errback(CancelledError())
        else:
            waiter.errback(outcome.value)
