"""Calls an assignment listener, one call at a time, within the group's time limits."""

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


class ListenerCalls:
    """Calls the listener of one membership.

    Exceptions that the listener raises are logged; the membership continues.
    """

    def __init__(self, listener: AssignmentListener, reactor: Reactor) -> None:
        self._listener = listener
        self._reactor = reactor
        self._call: Deferred[None] | None = None
        self._timer: IDelayedCall | None = None
        self._is_over = False

    async def call_on_revoked(self, partitions: Partitions, until_s: float) -> bool:
        """Call ``on_revoked``.

        :param until_s: reactor time at which the group stops waiting.
        :return: True if the listener returned in time; False after the limit or a loss of the partitions.
        """
        return await self._run(self._listener.on_revoked(partitions), until_s)

    async def call_on_assigned(self, partitions: Partitions) -> bool:
        """Call ``on_assigned``.

        :return: True if the listener returned in time; False after the limit or a loss of the partitions.
        """
        return await self._run(self._listener.on_assigned(partitions))

    def call_on_lost(self, partitions: Partitions) -> None:
        """Cancel the call in progress and call ``on_lost``."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        if partitions:
            try:
                self._listener.on_lost(partitions)
            except Exception:
                log.failure("the listener failed in on_lost")

    def close(self) -> None:
        """Propagate cancellations from now on, because the membership is about to be cancelled."""
        self._is_over = True

    def call_on_ended(self, error: Exception) -> None:
        """Call ``on_ended``."""
        try:
            self._listener.on_ended(error)
        except Exception:
            log.failure("the listener failed in on_ended")

    def limit(self, until_s: float) -> None:
        """Cancel the call in progress at a reactor time, at which the group stops waiting."""
        call = self._call
        if call is not None and self._timer is None:
            self._timer = self._reactor.callLater(max(until_s - self._reactor.seconds(), 0.0), self._cancel_call, call)

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
                log.warn("the listener cancelled its own call")
        except Exception:
            log.failure("the listener failed")
        finally:
            timer, self._timer = self._timer, None
            if timer is not None and timer.active():
                timer.cancel()
        is_done = self._call is call
        if is_done:
            self._call = None
        return is_done

    def _cancel_call(self, call: Deferred[None]) -> None:
        self._call = None
        call.cancel()
