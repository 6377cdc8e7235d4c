"""Waits for the outcomes of many records or batches with one Deferred."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from kreplica.client_core.errors import ClientError


class CompletionCounter:
    """Counts pending records or batches.

    :ivar pending: number of records or batches without an outcome; ``done`` fires at 0.
    :ivar failures: number of failed records.
    :ivar first_error: error of the first failed record.
    """

    __slots__ = ("done", "failures", "first_error", "pending")

    def __init__(self) -> None:
        self.pending = 0
        self.failures = 0
        self.first_error: ClientError | None = None
        self.done: Deferred[None] | None = None

    def complete(self, error: ClientError | None, count: int = 1) -> None:
        """Record the outcome of ``count`` records or batches."""
        self.pending -= count
        if error is not None:
            self.failures += count
            self.first_error = self.first_error or error
        if self.pending == 0 and self.done is not None:
            done, self.done = self.done, None
            if not done.called:
                done.callback(None)

    def wait(self) -> Deferred[None]:
        """Return a Deferred that fires when nothing is pending; may be called once."""
        done: Deferred[None] = Deferred()
        if self.pending == 0:
            done.callback(None)
        else:
            self.done = done
        return done
