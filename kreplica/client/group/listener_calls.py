"""Telling who reads what changes, one thing after the other, and not for longer than the group waits."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.client.group.membership import AssignmentListener
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor

log = Logger()

Partitions = frozenset[TopicPartition]


class Handover:
    """Of a membership's partitions to its listener, and back.

    What a listener raises is logged: the group goes on.
    """

    def __init__(self, listener: AssignmentListener, reactor: Reactor) -> None:
        self._listener = listener
        self._reactor = reactor
        self._call: Deferred[None] | None = None
        self._timer: IDelayedCall | None = None
        self._is_over = False

    async def revoked(self, partitions: Partitions, until_s: float) -> bool:
        """Let the listener give partitions up.

        :param until_s: the time of the reactor when the group waits no more.
        :return: whether it did; if not, the time was over, or they are lost.
        """
        return await self._run(self._listener.on_revoked(partitions), until_s)

    async def assigned(self, partitions: Partitions) -> bool:
        """Let the listener begin to read partitions.

        :return: whether it did; if not, they are lost, or the time was over that ``limit`` said.
        """
        return await self._run(self._listener.on_assigned(partitions))

    def lost(self, partitions: Partitions) -> None:
        """End what is under way, and tell that partitions are lost."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        if partitions:
            try:
                self._listener.on_lost(partitions)
            except Exception:
                log.failure("a listener that was told of lost partitions")

    def close(self) -> None:
        """The membership is about to be cancelled, and whatever it waits for."""
        self._is_over = True

    def ended(self, error: Exception) -> None:
        """Tell that there will be nothing any more."""
        try:
            self._listener.on_ended(error)
        except Exception:
            log.failure("a listener that was told of the end")

    def limit(self, until_s: float) -> None:
        """The group waits for what the listener was told of, no longer than until then."""
        call = self._call
        if call is not None and self._timer is None:
            self._timer = self._reactor.callLater(max(until_s - self._reactor.seconds(), 0.0), self._give_up, call)

    async def _run(self, work: Coroutine[Deferred[Any], Any, None], until_s: float | None = None) -> bool:
        call = self._call = Deferred.fromCoroutine(work)
        if until_s is not None and not call.called:
            self.limit(until_s)
        try:
            await call
        except CancelledError:
            if self._is_over:
                raise  # the membership itself was cancelled
            if self._call is call:
                log.warn("a listener that was told of its partitions cancelled itself")
        except Exception:
            log.failure("a listener that was told of its partitions")
        finally:
            timer, self._timer = self._timer, None
            if timer is not None and timer.active():
                timer.cancel()
        is_done = self._call is call
        if is_done:
            self._call = None
        return is_done

    def _give_up(self, call: Deferred[None]) -> None:
        self._call = None
        call.cancel()
