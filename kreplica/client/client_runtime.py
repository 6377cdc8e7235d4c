"""The seams: all that is not deterministic enters the client library through one ``ClientRuntime``."""

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
"""Makes the way to a host and port, which gives up connecting after so many seconds."""


def tcp_endpoint(reactor: Reactor, host: str, port: int, timeout_s: float) -> IStreamClientEndpoint:
    """Plain TCP to an address, or to a name that has an IPv4 address."""
    return TCP4ClientEndpoint(reactor, host, port, timeout_s)


def named_endpoint(reactor: Reactor, host: str, port: int, timeout_s: float) -> IStreamClientEndpoint:
    """Plain TCP to a name, by whichever of its IPv6 and IPv4 addresses answers first."""
    return HostnameEndpoint(reactor, host, port, timeout_s)


def tls_endpoints(**options: Any) -> EndpointMaker:
    """Ways that speak TLS, and check the host's name.

    :param options: as ``twisted.internet.ssl.optionsForClientTLS`` takes them: ``trustRoot``, ``clientCertificate``.
    """

    from twisted.internet.ssl import optionsForClientTLS

    def make(reactor: Reactor, host: str, port: int, timeout_s: float) -> IStreamClientEndpoint:
        creator = optionsForClientTLS(host, **options)
        return wrapClientTLS(creator, named_endpoint(reactor, host, port, timeout_s))

    return make


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRuntime:
    """What a client may not make for itself.

    :param reactor: connections, and monotonic time.
    :param random: for jitter, and for records without a key.
    :param wall_clock_ms: milliseconds since 1970: stamps records, measures nothing.
    :param endpoint: makes the way to a broker.
    """

    reactor: Reactor
    random: random.Random
    wall_clock_ms: Callable[[], int]
    endpoint: EndpointMaker = tcp_endpoint


def default_runtime(reactor: Any = None, *, endpoint: EndpointMaker = named_endpoint) -> ClientRuntime:
    """The process's own.

    :param reactor: Twisted's, unless given.
    :param endpoint: plain TCP; ``tls_endpoints`` gives one for TLS.
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
    """Those of a program that has a ``Runtime``: a broker's, or a simulated host's."""
    return ClientRuntime(reactor=runtime.reactor, random=runtime.random, wall_clock_ms=runtime.wall_clock_ms)
