"""Server: binds the listeners of a broker, accepts connections, and shuts down in an orderly way."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from typing import Protocol as TypingProtocol

from twisted.internet import tcp
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.protocol import Factory, Protocol

from kreplica.cluster.quotas import plain_address
from kreplica.errors import SettingsError
from kreplica.model import Endpoint
from kreplica.runtime import Runtime
from kreplica.runtime.pacing import LOOPBACK, disable_pacing
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.dispatch import Dispatch
from kreplica.server.protocol.handler_table import HandlerEntry
from kreplica.server.protocol.limits import Bounds
from kreplica.server.protocol.metrics import ServerMetrics
from kreplica.server.protocol.server_context import Resources
from kreplica.server.quotas.connection_limits import ConnectionLimits, Decision
from kreplica.server.transport.accept_gate import HeldConnection
from kreplica.server.transport.epoll_transport import EpollTransport
from kreplica.server.transport.flush_scope import FlushScope
from kreplica.server.transport.shared_port import listen_shared
from kreplica.server.transport.twisted_transport import TwistedTransport

if TYPE_CHECKING:
    from kreplica.security.tls.listener import ListenerTls
    from kreplica.server.authentication.sasl_config import SaslConfig

_ADVICE = {
    errno.EADDRINUSE: "another program uses this port: stop it, or choose another in listeners (standalone: --port)",
    errno.EACCES: "this user has no permission: choose a port of 1024 or above",
    errno.EADDRNOTAVAIL: "no interface of this machine has this address: use one of its addresses, or 0.0.0.0",
}


class _EpollProtocol(Protocol):
    """Protocol for Twisted, shared by the connections of a listener; their transports handle the frames."""

    def __init__(self, resources: Resources, open_connection: Callable[[str, int], Connection]) -> None:
        self._resources = resources
        self._open = open_connection

    def makeConnection(self, transport: Any) -> None:
        transport.setTcpNoDelay(True)
        if transport.getHost().host == transport.accepted_from[0]:
            disable_pacing(transport.socket)
        bounds = self._resources.bounds
        for option, size in (
            (socket.SO_SNDBUF, bounds.send_buffer_bytes),
            (socket.SO_RCVBUF, bounds.receive_buffer_bytes),
        ):
            if size > 0:
                transport.socket.setsockopt(socket.SOL_SOCKET, option, size)
        connection = self._open(*transport.accepted_from[:2])
        connection.attach(transport)
        transport.begin(connection)


NewTransport = Callable[..., EpollTransport]
"""Creates the transport of a connection with the arguments of ``tcp.Server``."""


class Authentication(TypingProtocol):
    """Authenticates the connections of a listener (``authentication.sasl_listener.SaslListener``)."""

    def attach(self, connection: Connection) -> None: ...


class _ListenerFactory(Factory):
    """Creates the protocols of a listener's connections.

    :param use_epoll: use an ``EpollTransport``, which the listening port creates.
    :param authentication: authenticates the clients; None if they need not authenticate.
    """

    noisy = False

    def __init__(
        self,
        resources: Resources,
        listener: str,
        authentication: Authentication | None,
        *,
        use_epoll: bool,
    ) -> None:
        self._resources = resources
        self._authentication = authentication
        self._listener = listener
        self._epoll_protocol = _EpollProtocol(resources, self._open) if use_epoll else None

    def buildProtocol(self, addr: IPv4Address | IPv6Address) -> Protocol | None:  # type: ignore[override]
        resources = self._resources
        address = plain_address(addr.host) or addr.host
        admission = resources.connections.admit(self._listener, address)
        if admission.decision is Decision.HELD:
            return resources.connections.held.hold(admission.delay_s)
        if admission.decision is Decision.REFUSED:
            return None
        if self._epoll_protocol is not None:
            return self._epoll_protocol
        connection = self._open(addr.host, addr.port)
        protocol = TwistedTransport(resources, connection)
        connection.attach(protocol)
        return protocol

    def _open(self, host: str, port: int) -> Connection:
        """Return the connection of a client that was admitted."""
        resources = self._resources
        connection = resources.connection(self._listener, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        # All connections of an address share its text.
        resources.connections.opened(connection, sys.intern(plain_address(host) or host))
        if self._authentication is not None:
            self._authentication.attach(connection)
        return connection


class Server:
    """All listeners of one broker.

    :param table: handlers by API key; ApiVersions is added.
    :param flush_scope: the scope whose ``at_end`` the broker's purgatory uses; None creates one.
    :param limits: limits the connections; None for no limits.
    :param use_twisted_transport: use Twisted's own transport even if the reactor supports ``EpollTransport``.
    :param on_unreadable: called with the path of a file that could not be sent, and the error.
    :param on_stopping: called when the server stops accepting connections.
    """

    def __init__(
        self,
        runtime: Runtime,
        table: Mapping[int, HandlerEntry],
        bounds: Bounds | None = None,
        *,
        flush_scope: FlushScope | None = None,
        limits: ConnectionLimits | None = None,
        use_twisted_transport: bool = False,
        on_unreadable: Callable[[str, OSError], None] = lambda *_: None,
        on_stopping: Callable[[], None] = lambda: None,
    ) -> None:
        self.metrics = ServerMetrics()
        self._on_stopping = on_stopping
        flush_scope = flush_scope or FlushScope(runtime.reactor)
        bounds = bounds or Bounds()
        dispatch = Dispatch(table, self.metrics, runtime.reactor.seconds, flush_scope, bounds)
        limits = limits or ConnectionLimits(runtime.reactor.seconds)
        self.resources = Resources(runtime, dispatch, bounds, flush_scope, limits, on_unreadable)
        self._use_epoll = IReactorFDSet.providedBy(runtime.reactor) and not use_twisted_transport
        self._ports: list[Any] = []

    def listen(
        self,
        endpoint: Endpoint,
        tls: ListenerTls | None = None,
        sasl: SaslConfig | None = None,
        shared_port: int = 0,
    ) -> int:
        """Start accepting connections.

        :param endpoint: listener name; address to bind, empty for all; port, 0 to let the system choose.
        :param tls: encrypts the connections; None for a plaintext listener.
        :param sasl: authenticates the clients; None if they need not authenticate.
        :param shared_port: a second port, on which other processes may also listen (``shared_port``); 0 for none.
        :return: the port.
        :raise SettingsError: the address cannot be bound; the message contains the reason and a remedy.
        """
        assert self._use_epoll or tls is None, "TLS needs a reactor with file descriptors"
        authentication = None if sasl is None else self._authentication(sasl)
        factory = _ListenerFactory(self.resources, endpoint.listener, authentication, use_epoll=self._use_epoll)
        backlog = self.resources.bounds.accept_backlog
        reactor = self.resources.reactor
        with _bind_errors(endpoint):
            bound = reactor.listenTCP(endpoint.port, factory, backlog=backlog, interface=endpoint.host)
        self._add_port(bound, endpoint, tls)
        if shared_port:
            with _bind_errors(endpoint._replace(port=shared_port)):
                shared = listen_shared(reactor, endpoint.host, shared_port, factory, backlog)
            self._add_port(shared, endpoint, tls)
        number: int = bound.getHost().port
        return number

    def _add_port(self, bound: Any, endpoint: Endpoint, tls: ListenerTls | None) -> None:
        self.resources.connections.add_port(bound, endpoint.listener)
        if self._use_epoll:
            bound.transport = partial(_transport, self._new_transport(tls))
            if endpoint.host in LOOPBACK:
                disable_pacing(bound.socket)
        self._ports.append(bound)

    def _authentication(self, config: SaslConfig) -> Authentication:
        # Imported here because most brokers have no listener with SASL.
        from kreplica.server.authentication.sasl_listener import SaslListener

        return SaslListener(self.resources, config)

    def _new_transport(self, tls: ListenerTls | None) -> NewTransport:
        if tls is None:
            return partial(EpollTransport, self.resources)
        # Imported here because it imports OpenSSL.
        from kreplica.server.transport.tls_transport import TlsTransport

        return partial(TlsTransport, tls, self.resources)

    def replace_handlers(self, table: Mapping[int, HandlerEntry]) -> None:
        """See ``Dispatch.replace_handlers``."""
        self.resources.dispatch.replace_handlers(table)

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Stop accepting connections, respond to the pending requests, and close the connections.

        :param timeout_s: time after which connections with pending requests are also closed.
        """
        self._on_stopping()
        self.resources.connections.stop_accepting()
        ports, self._ports = self._ports, []
        stopped: list[Deferred[Any]] = [bound.stopListening() for bound in ports]
        await DeferredList(stopped, fireOnOneErrback=True, consumeErrors=True)
        await self.resources.connections.stop(timeout_s)


def _transport(new: NewTransport, sock: socket.socket, protocol: Any, *arguments: Any) -> tcp.Server:
    """Return the transport of an accepted connection."""
    if isinstance(protocol, HeldConnection):
        return tcp.Server(sock, protocol, *arguments)
    return new(sock, protocol, *arguments)


@contextmanager
def _bind_errors(endpoint: Endpoint) -> Iterator[None]:
    """Convert the errors of binding an address.

    :raise SettingsError: the address cannot be bound.
    """
    try:
        yield
    except CannotListenError as error:
        raise SettingsError(_cannot_listen(endpoint, error.socketError)) from None
    except OSError as error:
        raise SettingsError(_cannot_listen(endpoint, error)) from None


def _cannot_listen(endpoint: Endpoint, error: Exception) -> str:
    number = getattr(error, "errno", None)
    advice = _ADVICE.get(number, "change it in listeners") if isinstance(number, int) else "change it in listeners"
    return f"cannot listen on {endpoint}: {advice} ({error})"
