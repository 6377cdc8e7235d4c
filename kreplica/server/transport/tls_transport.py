"""Transport of TLS connections: handshake, its timeout, and the user of the client's certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IDelayedCall, IHandshakeListener
from twisted.internet.protocol import Factory, connectionDone
from twisted.logger import Logger
from twisted.protocols.tls import BufferingTLSTransport, TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.security.tls.listener import ListenerTls
from kreplica.server.protocol.connection import Connection
from kreplica.server.transport.accept_gate import HeldConnection
from kreplica.server.transport.twisted_transport import TwistedTransport

if TYPE_CHECKING:
    from kreplica.server.protocol.server_context import Resources

log = Logger()

HANDSHAKE_TIMEOUT_S = 30.0
"""Maximum time between the acceptance of a connection and the end of its TLS handshake."""


@implementer(IHandshakeListener)
class TlsTransport(TwistedTransport):
    """Transport of one TLS connection."""

    def __init__(self, resources: Resources, connection: Connection, tls: ListenerTls) -> None:
        super().__init__(resources, connection)
        self._tls = tls
        self._timeout: IDelayedCall | None = None
        self._received: list[bytes] = []

    def connectionMade(self) -> None:
        super().connectionMade()
        self._timeout = self._resources.reactor.callLater(HANDSHAKE_TIMEOUT_S, self._handshake_timed_out)

    def dataReceived(self, data: bytes) -> None:
        """Keep the content of one TLS record until ``handle_received``."""
        self._received.append(data)

    def handle_received(self) -> None:
        """Handle the content of all records of one read together.

        librdkafka encrypts the fields of each Kafka record separately: a Produce of 16 KB has dozens of TLS records.
        """
        received = self._received
        if received:
            self._received = []
            super().dataReceived(received[0] if len(received) == 1 else b"".join(received))

    def handshakeCompleted(self) -> None:
        """Set the user of the connection, unless the client authenticates with SASL."""
        self._cancel_timeout()
        if self.connection.sasl is not None:
            return
        user = self._tls.user_of(self.transport.getPeerCertificate())
        if user is None:
            self.connection.drop("no rule of ssl.principal.mapping.rules matches the certificate of the client")
        else:
            self.connection.user = f"User:{user}"

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.handle_received()
        if self._timeout is not None:
            self._cancel_timeout()
            peer, why = self.connection.peer, reason.getErrorMessage()
            log.info("the TLS handshake with {peer} failed: {reason}", peer=peer, reason=why)
        super().connectionLost(reason)

    def _handshake_timed_out(self) -> None:
        self._timeout = None
        self.connection.drop(f"no TLS handshake within {HANDSHAKE_TIMEOUT_S:g} s")

    def _cancel_timeout(self) -> None:
        timeout, self._timeout = self._timeout, None
        if timeout is not None:
            timeout.cancel()


class _TlsProtocol(BufferingTLSTransport):
    """Decrypts the data of one connection, and notifies its transport at the end of each read."""

    wrappedProtocol: TlsTransport

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)  # type: ignore[no-untyped-call]
        self.wrappedProtocol.handle_received()


class TlsFactory(TLSMemoryBIOFactory):
    """Factory of a TLS listener; unlike Twisted's, it supports a wrapped factory that refuses or holds connections."""

    noisy = False
    protocol = _TlsProtocol

    def __init__(self, tls: ListenerTls, wrapped: Factory, reactor: Any) -> None:
        super().__init__(tls, False, wrapped, reactor)

    def buildProtocol(self, addr: Any) -> Any:
        protocol = self.wrappedFactory.buildProtocol(addr)
        if protocol is None or isinstance(protocol, HeldConnection):
            return protocol
        return self.protocol(self, protocol)
