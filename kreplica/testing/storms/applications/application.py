"""Base class of applications: a process with its own ``Cluster`` object that works until it is stopped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from random import Random

from twisted.internet.defer import CancelledError, Deferred

from kreplica.client.client_runtime import EndpointMaker, runtime_of, tcp_endpoint
from kreplica.client.cluster import Cluster
from kreplica.client_core.options import ClientOptions
from kreplica.runtime.pause import pause
from kreplica.testing.simulator.simulation import Host

IMPATIENT = ClientOptions(
    connect_timeout_s=3.0, request_timeout_s=5.0, operation_timeout_s=20.0, metadata_age_s_max=20.0
)
"""Timeouts short enough to expire in every storm."""


class Application(ABC):
    """One process of an application; it ends when ``run`` returns or its host is killed.

    :param name: unique per process.
    :ivar endpoint: function that creates the endpoints of connections.
    :ivar is_over: True after ``run``.
    :ivar is_superseded: True if another process took over its slot; this process then ends at its next client error.
    """

    def __init__(self, host: Host, name: str, bootstrap: str) -> None:
        self.host = host
        self.name = name
        self.endpoint: EndpointMaker = tcp_endpoint
        self.is_superseded = False
        self.is_finishing = self.is_over = False
        self.random = Random(f"{host.runtime.random.random()}/{name}")
        self._bootstrap = bootstrap
        self._working: Deferred[None] | None = None

    async def run(self) -> None:
        """Work until ``finish``, and close everything."""
        options = replace(IMPATIENT, client_id=self.name)
        runtime = replace(runtime_of(self.host.runtime), endpoint=self.endpoint)
        async with Cluster(self._bootstrap, options=options, runtime=runtime) as cluster:
            self._working = Deferred.fromCoroutine(self._work(cluster))
            try:
                await self._working
            except CancelledError:
                if not self.is_finishing:
                    raise
        self.is_over = True

    def finish(self) -> None:
        """Stop gracefully, no matter what the application is waiting for."""
        self.is_finishing = True
        if self._working is not None:
            self._working.cancel()

    @abstractmethod
    async def _work(self, cluster: Cluster) -> None:
        """Do the application's work; cancelled by ``finish``."""

    async def sleep(self, seconds: float) -> None:
        await pause(self.host.reactor, seconds)

    def leaks(self) -> list[str]:
        """Describe the timers and connections that exist after the application has ended."""
        reactor = self.host.reactor
        timers = [f"timer {call!r}" for call in reactor.getDelayedCalls()]
        descriptors = [*reactor.getReaders(), *reactor.getWriters()]
        return [*timers, *(f"connection {descriptor!r}" for descriptor in descriptors)]
