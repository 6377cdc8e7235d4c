"""Waiting for many outcomes at once."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from kreplica.client_core.errors import ClientError


class Countdown:
    """Counts outcomes of records, or of batches, for somebody who waits for all of them.

    :ivar pending: without an outcome; ``done`` fires when there is none.
    :ivar failures: records that were not written; ``first`` is why the first of them was not.
    """

    __slots__ = ("done", "failures", "first", "pending")

    def __init__(self) -> None:
        self.pending = 0
        self.failures = 0
        self.first: ClientError | None = None
        self.done: Deferred[None] | None = None

    def told(self, error: ClientError | None, count: int = 1) -> None:
        """So many have their outcome, the same one."""
        self.pending -= count
        if error is not None:
            self.failures += count
            self.first = self.first or error
        if self.pending == 0 and self.done is not None:
            done, self.done = self.done, None
            if not done.called:
                done.callback(None)

    def wait(self) -> Deferred[None]:
        """Fires when all have their outcomes; to be called once."""
        done: Deferred[None] = Deferred()
        if self.pending == 0:
            done.callback(None)
        else:
            self.done = done
        return done
