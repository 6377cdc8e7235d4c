"""Periodically checks the followers of all partitions that this broker leads for lag.

The rule is ``isr_membership.is_lagging``; ``isr_proposal`` removes a lagging follower from the ISR.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.replication.role import RolePartition
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.runtime.time_slice import TimeSlice

log = Logger()


class LagCheckTimer:
    """Periodic lag check; owned by the broker.

    :param interval_s: seconds between checks; half of ``replica.lag.time.max.ms``, so that a follower that is caught up
        at one check cannot be lagging at the next.
    """

    def __init__(self, reactor: Reactor, partitions: Iterable[RolePartition], interval_s: float) -> None:
        self._reactor = reactor
        self._partitions = partitions
        self._interval_s = interval_s
        self._watching: Deferred[None] | None = None

    def start(self) -> None:
        self._watching = Deferred.fromCoroutine(self._watch())
        self._watching.addErrback(lambda failure: log.failure("follower lag checks stopped", failure))

    def stop(self) -> None:
        """Stop the checks; idempotent."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()

    async def _watch(self) -> None:
        try:
            while True:
                await pause(self._reactor, self._interval_s)
                await self._check()
        except CancelledError:
            pass

    async def _check(self) -> None:
        time_slice = TimeSlice(self._reactor)
        for partition in list(self._partitions):
            partition.role.check_lag()
            if time_slice.is_over:
                await time_slice.next()
