"""Removes unneeded files and directories later, in batches and in another thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from kreplica.runtime import Runtime

BATCH_SECONDS = 0.01
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

    :param on_failure: called with the failure of a removal.
    """

    def __init__(self, runtime: Runtime, on_failure: Callable[[Failure], None]) -> None:
        self._runtime = runtime
        self._on_failure = on_failure
        self._batches: dict[_Batch, IDelayedCall] = {}

    def schedule(self, remove: Callable[[], None], delay_ms: int) -> None:
        """Run a removal in another thread after about this delay."""
        now_s = self._runtime.reactor.seconds()
        batch = next(reversed(self._batches), None)
        if batch is None or batch.delay_ms != delay_ms or now_s - batch.requested_s > BATCH_SECONDS:
            batch = _Batch(now_s, delay_ms)
            self._batches[batch] = self._runtime.reactor.callLater(delay_ms / 1000, self._run_batch, batch)
        batch.removals.append(remove)

    def _run_batch(self, batch: _Batch) -> None:
        del self._batches[batch]
        self._runtime.offload.run(batch.run).addErrback(self._on_failure)

    def cancel(self) -> None:
        """Cancel all pending removals."""
        for call in self._batches.values():
            call.cancel()
        self._batches.clear()
