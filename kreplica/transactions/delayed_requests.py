"""Delays requests that arrive while the markers of the previous transaction are being written.

Producers start their next transaction as soon as the previous one is decided. An error would make them retry after 20
ms or more, although writing markers usually takes much less time. An EndTxn that arrives after a delayed
AddPartitionsToTxn waits too: if it were decided first, an abort would fail with INVALID_TXN_STATE, which is a fatal
error in librdkafka.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall

from kreplica.runtime import Reactor

WAIT_SECONDS = 1.0
"""Maximum delay in seconds; afterwards the request is decided in the state at that time.

It is far below clients' request timeouts (30 s or more), and above the time that it takes to write markers on a busy
machine.
"""

WAITING_MAX = 8
"""Maximum number of delayed requests per transactional id."""

Retry = Callable[[], None]


class DelayedRequests:
    """Delayed requests of one shard; owned by the shard. Each request is delayed at most once."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._waiting: dict[str, tuple[list[Retry], IDelayedCall]] = {}

    def wait(self, transactional_id: str, retry: Retry) -> bool:
        """Call back when the transaction is complete or the maximum delay has passed.

        :return: False if too many requests are already delayed; then ``retry`` is not called.
        """
        entry = self._waiting.get(transactional_id)
        if entry is None:
            timer = self._reactor.callLater(WAIT_SECONDS, self.end, transactional_id)
            entry = self._waiting[transactional_id] = ([], timer)
        elif len(entry[0]) >= WAITING_MAX:
            return False
        entry[0].append(retry)
        return True

    def has_requests(self, transactional_id: str) -> bool:
        """Return True if requests of a transactional id are delayed."""
        return transactional_id in self._waiting

    def end(self, transactional_id: str) -> None:
        """Call back all delayed requests of a transactional id."""
        entry = self._waiting.pop(transactional_id, None)
        if entry is None:
            return
        waiting, timer = entry
        if timer.active():
            timer.cancel()
        for retry in waiting:
            retry()

    def end_all(self) -> None:
        """Call back all delayed requests, because this broker stops coordinating."""
        for transactional_id in list(self._waiting):
            self.end(transactional_id)
