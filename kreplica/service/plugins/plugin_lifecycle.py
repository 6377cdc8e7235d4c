"""Starts and stops metrics reporters and extra listeners with the broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError

from kreplica.errors import KreplicaError
from kreplica.interfaces import IExtraListener, IMetricsReporter
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.service.plugins.plugin_failures import PluginFailures

if TYPE_CHECKING:
    from kreplica.admin.resources.metrics import MetricsSource

STOP_SECONDS_MAX = 10.0


class Reporter(NamedTuple):
    plugin: IMetricsReporter
    failures: PluginFailures


class Listener(NamedTuple):
    plugin: IExtraListener
    failures: PluginFailures


class MetricsReporting:
    """Sends metrics to each reporter, at a fixed interval after its previous report."""

    def __init__(self, reactor: Reactor, reporters: Sequence[Reporter], interval_s: float) -> None:
        self._reactor = reactor
        self._reporters = reporters
        self._interval_s = interval_s
        self._running: list[Deferred[None]] = []

    def start(self, new_source: Callable[[], MetricsSource]) -> None:
        """Start reporting; without reporters, nothing is collected."""
        for reporter in self._reporters:
            running = Deferred.fromCoroutine(self._report(reporter, new_source()))
            running.addErrback(lambda failure: failure.trap(CancelledError))
            self._running.append(running)

    async def _report(self, reporter: Reporter, source: MetricsSource) -> None:
        while True:
            await pause(self._reactor, self._interval_s)
            try:
                await reporter.plugin.report(source.families())
            except CancelledError:
                raise
            except Exception:
                reporter.failures.record_exception("reporting metrics")

    def stop(self) -> None:
        """Stop reporting, and cancel reports in progress."""
        running, self._running = self._running, []
        for each in running:
            each.cancel()


class ExtraListeners:
    """Starts extra listeners in order, and stops them in reverse order."""

    def __init__(self, reactor: Reactor, listeners: Sequence[Listener]) -> None:
        self._reactor = reactor
        self._listeners = listeners
        self._started: list[Listener] = []

    async def start(self) -> None:
        """Start all listeners.

        :raise KreplicaError: a required listener cannot start.
        """
        for listener in self._listeners:
            self._started.append(listener)
            try:
                await listener.plugin.start()
            except (CancelledError, KreplicaError):
                raise
            except Exception:
                listener.failures.record_exception("starting")

    async def stop(self) -> None:
        """Stop the listeners that were started, with a timeout of ten seconds each."""
        while self._started:
            listener = self._started.pop()
            try:
                stopping = Deferred.fromCoroutine(_awaited(listener.plugin.stop()))
                await stopping.addTimeout(STOP_SECONDS_MAX, self._reactor)  # type: ignore[arg-type]
            except DeferredTimeoutError:
                listener.failures.record_misbehaviour(f"has not stopped within {STOP_SECONDS_MAX:.0f} s")
            except CancelledError:
                raise
            except Exception:
                listener.failures.record_exception("stopping")


async def _awaited(work: Awaitable[None]) -> None:
    await work
