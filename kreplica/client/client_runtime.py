"""Reactor, randomness, clock and endpoints of a client."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, wrapClientTLS
from twisted.internet.interfaces import IStreamClientEndpoint

from kreplica.runtime import Reactor, Runtime

EndpointMaker: TypeAlias = Callable[[Reactor, str, int, float], IStreamClientEndpoint]
"""Creates the endpoint of a host and port, with a connect timeout in seconds."""


def tcp_endpoint(reactor: Reactor, host: str, port: int, timeout_s: float) -> IStreamClientEndpoint:
    """Return a plain TCP endpoint for an IP address, or for a host name that resolves to an IPv4 address."""
    return TCP4ClientEndpoint(reactor, host, port, timeout_s)


def hostname_endpoint(reactor: Reactor, host: str, port: int, timeout_s: float) -> IStreamClientEndpoint:
    """Return a plain TCP endpoint for a host name; connects to the IPv6 or IPv4 address that responds first."""
    return HostnameEndpoint(reactor, host, port, timeout_s)


def tls_endpoints(**options: Any) -> EndpointMaker:
    """Return a factory of TLS endpoints that verify the host name.

    :param options: arguments of ``twisted.internet.ssl.optionsForClientTLS``, such as ``trustRoot`` and
        ``clientCertificate``.
    """

    from twisted.internet.ssl import optionsForClientTLS

    def make(reactor: Reactor, host: str, port: int, timeout_s: float) -> IStreamClientEndpoint:
        creator = optionsForClientTLS(host, **options)
        return wrapClientTLS(creator, hostname_endpoint(reactor, host, port, timeout_s))

    return make


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRuntime:
    """All sources of non-determinism of a client.

    :param reactor: provides connections and monotonic time.
    :param random: used for jitter and partitioning.
    :param wall_clock_ms: returns milliseconds since 1970, for the timestamps of records.
    :param endpoint: creates the brokers' endpoints.
    """

    reactor: Reactor
    random: random.Random
    wall_clock_ms: Callable[[], int]
    endpoint: EndpointMaker = tcp_endpoint


def default_runtime(reactor: Any = None, *, endpoint: EndpointMaker = hostname_endpoint) -> ClientRuntime:
    """Return a runtime with the process's reactor and clock.

    :param reactor: Twisted's installed reactor by default.
    :param endpoint: plain TCP by default; ``tls_endpoints`` returns one for TLS.
    """
    if reactor is None:
        from twisted.internet import reactor as installed

        reactor = installed
    return ClientRuntime(
        reactor=reactor,
        random=random.Random(),
        wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        endpoint=endpoint,
    )


def runtime_of(runtime: Runtime) -> ClientRuntime:
    """Return the client runtime of a broker's or simulated host's ``Runtime``."""
    return ClientRuntime(reactor=runtime.reactor, random=runtime.random, wall_clock_ms=runtime.wall_clock_ms)
