"""Looks after followers that are not heard of: every so often at each partition that this broker leads."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.replication.leader.leader_state import LedPartition
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.runtime.turns import Turns

log = Logger()


class LagWatch:
    """Owned by the broker.

    :param interval_s: between two looks; half of ``replica.lag.time.max.ms``, so that whoever has everything at one
        look cannot lag at the next.
    """

    def __init__(self, reactor: Reactor, partitions: Iterable[LedPartition], interval_s: float) -> None:
        self._reactor = reactor
        self._partitions = partitions
        self._interval_s = interval_s
        self._watching: Deferred[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._watching = Deferred.fromCoroutine(self._watch())
        self._watching.addErrback(lambda failure: log.failure("followers are not watched any more", failure))

    def stop(self) -> None:
        """Look no more; again does nothing."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()

    async def _watch(self) -> None:
        try:
            while True:
                await pause(self._reactor, self._interval_s)
                await self._look()
        except CancelledError:
            pass

    async def _look(self) -> None:
        turns = Turns(self._reactor)
        for partition in list(self._partitions):
            if partition.led is not None:
                partition.led.look_for_lag()
            if turns.is_over:
                await turns.next()
