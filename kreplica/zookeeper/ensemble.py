"""Connect strings of ZooKeeper ensembles, the order in which servers are tried, and the TCP or TLS connection."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, wrapClientTLS
from twisted.internet.interfaces import (
    IOpenSSLClientConnectionCreator,
    IProtocol,
    IReactorPluggableNameResolver,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import Factory

from kreplica.runtime import Reactor
from kreplica.zookeeper.errors import BadArguments

PORT_DEFAULT = 2181

# The first attempt at each server is almost immediate, so that a failover is fast; jitter spreads the clients of a
# failed server.  Afterwards the backoff doubles with each round through all servers.
FIRST_PAUSE_S_MAX = 0.05
PAUSE_S = 0.1
PAUSE_S_MAX = 2.0

TlsContextFactory = Callable[[str], IOpenSSLClientConnectionCreator]


class Server(NamedTuple):
    """One server of an ensemble; ``host`` is a name, an IPv4 address or an IPv6 address without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Parsed connect string.

    :param chroot: path prefix of the client, without a trailing slash; empty for the whole tree.
    """

    servers: tuple[Server, ...]
    chroot: str = ""

    @classmethod
    def parse(cls, connect_string: str) -> Ensemble:
        """Parse ``host:port,host:port/chroot``, the format of ``zookeeper.connect``; the default port is 2181.

        :raise BadArguments: a part cannot be parsed; the message contains it.
        """
        hosts, slash, chroot = connect_string.strip().partition("/")
        chroot = (slash + chroot).rstrip("/")
        if "//" in chroot:
            raise BadArguments(None, f"connect string {connect_string!r}: the chroot has an empty component")
        return cls(tuple(_parse_server(part.strip(), connect_string) for part in hosts.split(",")), chroot)


def _parse_server(text: str, connect_string: str) -> Server:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if bracket and rest[:1] in ("", ":") else "no port"
    elif text.count(":") > 1:
        host, port = text, ""  # a bare IPv6 address
    else:
        host, _, port = text.partition(":")
    number = int(port) if port.isascii() and port.isdigit() else PORT_DEFAULT if not port else 0
    if not host or not 0 < number < 65536 or (":" in host and not isIPv6Address(host)):
        raise BadArguments(None, f"connect string {connect_string!r}: {text!r} is not host:port or [address]:port")
    return Server(host, number)


class ServerOrder:
    """Order and backoff of the connection attempts of one session.

    :param randomness: shuffles the servers, so that clients are spread over the ensemble.
    """

    def __init__(self, ensemble: Ensemble, randomness: random.Random) -> None:
        self._servers = list(ensemble.servers)
        self._random = randomness
        self._random.shuffle(self._servers)
        self._next = 0
        self._attempts = 0

    def next(self) -> tuple[Server, float]:
        """Return the next server and the delay in seconds before the attempt; the first delay is 0."""
        server = self._servers[self._next % len(self._servers)]
        first = self._next == 0
        self._next += 1
        rounds = self._attempts // len(self._servers)
        self._attempts += 1
        if rounds == 0:
            return server, 0.0 if first else self._random.random() * FIRST_PAUSE_S_MAX
        pause_s = min(PAUSE_S_MAX, PAUSE_S * 2 ** min(rounds - 1, 10))
        return server, pause_s * (0.5 + 0.5 * self._random.random())

    def reset_backoff(self) -> None:
        """Reset the backoff after a connection that lasted for a while."""
        self._attempts = 0


def connect(
    reactor: Reactor,
    server: Server,
    factory: Factory[Any],
    timeout_s: float,
    tls: IOpenSSLClientConnectionCreator | None,
) -> Deferred[IProtocol]:
    """Open a connection; cancelling the Deferred aborts the attempt.

    :param timeout_s: timeout for each address of the host name.
    :param tls: None means plain TCP.
    """
    untyped: Any = reactor
    endpoint: IStreamClientEndpoint
    literal = isIPAddress(server.host) or isIPv6Address(server.host)
    if literal or not IReactorPluggableNameResolver.providedBy(reactor):
        endpoint = TCP4ClientEndpoint(untyped, server.host, server.port, timeout_s)
    else:
        endpoint = HostnameEndpoint(untyped, server.host, server.port, timeout_s)
    if tls is not None:
        endpoint = wrapClientTLS(tls, endpoint)
    return endpoint.connect(factory)
