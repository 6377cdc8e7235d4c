"""Requests that come while the markers of the last transaction are written wait for a moment, and are decided then.

Producers begin their next transaction as soon as they hear that the last one is decided.  Sent away, they would
come again after 20 ms or more, which is many times what the markers take.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime import Reactor

WAIT_SECONDS = 0.2
"""After so long whoever waits is decided as things are then."""

WAITING_MAX = 8
"""So many may wait for one transactional id."""

Again = Callable[[], None]


class DelayedRequests:
    """Owned by a shard; nobody waits twice."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._waiting: dict[str, tuple[list[Again], IDelayedCall]] = {}

    def wait(self, transactional_id: str, again: Again) -> bool:
        """Have a request decided again, once: when the transaction is complete, or the wait has been long enough.

        :return: False where too many wait already, and this one does not.
        """
        line = self._waiting.get(transactional_id)
        if line is None:
            timer = self._reactor.callLater(WAIT_SECONDS, self.end, transactional_id)
            line = self._waiting[transactional_id] = ([], timer)
        elif len(line[0]) >= WAITING_MAX:
            return False
        line[0].append(again)
        return True

    def end(self, transactional_id: str) -> None:
        """Have all decided that wait for a transactional id."""
        line = self._waiting.pop(transactional_id, None)
        if line is None:
            return
        waiting, timer = line
        if timer.active():
            timer.cancel()
        for again in waiting:
            again()

    def end_all(self) -> None:
        """Have all decided that wait: this broker coordinates no more."""
        for transactional_id in list(self._waiting):
            self.end(transactional_id)
