"""Removes unneeded files and directories later, in batches and in another thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from kreplica.runtime import Runtime

TOGETHER_SECONDS = 0.01
"""Removals requested within this time are combined, because a topic may have 1,000 logs."""


@dataclass(eq=False, slots=True)
class _Batch:
    requested_s: float
    delay_ms: int
    removals: list[Callable[[], None]] = field(default_factory=list)

    def run(self) -> None:
        for remove in self.removals:
            remove()


class Removals:
    """Pending removals of one log directory; those not done at shutdown are completed at the next start.

    :param failed: called with the failure of a removal.
    """

    def __init__(self, runtime: Runtime, failed: Callable[[Failure], None]) -> None:
        self._runtime = runtime
        self._failed = failed
        self._batches: dict[_Batch, IDelayedCall] = {}

    def later(self, remove: Callable[[], None], delay_ms: int) -> None:
        """Run a removal in another thread after about this delay."""
        now_s = self._runtime.reactor.seconds()
        batch = next(reversed(self._batches), None)
        if batch is None or batch.delay_ms != delay_ms or now_s - batch.requested_s > TOGETHER_SECONDS:
            batch = _Batch(now_s, delay_ms)
            self._batches[batch] = self._runtime.reactor.callLater(delay_ms / 1000, self._due, batch)
        batch.removals.append(remove)

    def _due(self, batch: _Batch) -> None:
        del self._batches[batch]
        self._runtime.offload.run(batch.run).addErrback(self._failed)

    def cancel(self) -> None:
        """Cancel all pending removals."""
        for call in self._batches.values():
            call.cancel()
        self._batches.clear()
