"""Records in the timeline when a fault of this broker starts and ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.admin.health.faults import BROKER_ONLY_KINDS, Fault
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.service.metrics.local_health import LocalHealth

log = Logger()

INTERVAL_S = 2.0

STARTED, ENDED = "fault_started", "fault_ended"
"""Kinds of timeline entries."""

NOT_RECORDED = ("zookeeper_lost", "under_replicated", *BROKER_ONLY_KINDS)
"""Kinds of faults that have their own entries in the controller's history, and kinds that come and go."""

Key = tuple[str, str]
"""Kind and detail of a fault; the text and subject of a fault may change while it lasts."""


class History(Protocol):
    """The timeline of this broker."""

    def record(self, kind: str, subject: str, text: str, **details: Any) -> None: ...


class HealthWatch:
    """Compares successive reports of a broker; a loop runs from ``start`` to ``stop``.

    :param history: the timeline of the broker.
    """

    def __init__(self, reactor: Reactor, local: LocalHealth, history: History) -> None:
        self._reactor = reactor
        self._local = local
        self._history = history
        self._known: Mapping[Key, Fault] = {}
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        """Start comparing."""
        self._running = running = Deferred.fromCoroutine(self._run())
        running.addErrback(lambda failure: log.failure("watching the faults of this broker failed", failure))

    def stop(self) -> None:
        """Stop comparing; idempotent."""
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        try:
            while True:
                await self.check()
                await pause(self._reactor, INTERVAL_S)
        except CancelledError:
            pass

    async def check(self) -> None:
        """Record the differences from the previous check."""
        report = await self._local.report()
        found = {(each.kind, each.detail): each for each in report.faults if each.kind not in NOT_RECORDED}
        for key, fault in found.items():
            if key not in self._known:
                self._record(STARTED, fault, fault.text)
        for key, fault in self._known.items():
            if key not in found:
                self._record(ENDED, fault, f"Ended: {fault.text}")
        self._known = found

    def _record(self, kind: str, fault: Fault, text: str) -> None:
        document = fault.document()
        count, examples = document["count"], document["examples"]
        self._history.record(kind, fault.subject, text, fault=fault.kind, count=count, examples=examples)
