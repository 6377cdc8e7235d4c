"""A client's request that is waiting for its response."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall

from kreplica.wire.messages import Api


class OutstandingRequest:
    """A request in flight; ``deferred`` is None after the caller has cancelled it."""

    __slots__ = ("api", "correlation_id", "deferred", "timeout_s", "timer", "version")

    def __init__(self, api: Api, version: int, correlation_id: int, timeout_s: float) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.timeout_s = timeout_s
        self.deferred: Deferred[dict[str, Any]] | None = Deferred(self._cancelled)
        self.timer: IDelayedCall | None = None

    def detach(self) -> Deferred[dict[str, Any]] | None:
        """Stop the timer and return the Deferred to fire."""
        deferred, self.deferred = self.deferred, None
        if self.timer is not None and self.timer.active():
            self.timer.cancel()
        return deferred

    def _cancelled(self, _: Deferred[dict[str, Any]]) -> None:
        self.detach()
