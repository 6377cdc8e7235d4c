"""Transport of TLS connections: handshake, its timeout, and the user of the client's certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet import main
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.security.tls.listener import ListenerTls
from kreplica.server.transport.epoll_transport import EpollTransport
from kreplica.server.transport.outgoing import OutgoingQueue
from kreplica.server.transport.tls_socket import TlsSocket

if TYPE_CHECKING:
    from kreplica.server.protocol.server_context import Resources

log = Logger()

HANDSHAKE_TIMEOUT_S = 30.0
"""Maximum time from accepting a connection to the end of its TLS handshake."""


GATHER_S = 0.001
"""Delay of the next read of a large request, in which more bytes arrive."""

MISSING_BYTES_MIN = 64 * 1024
"""The next read is delayed if at least this fraction of the request is missing."""

SMALL_READ_BYTES = 16 * 1024
"""The next read is delayed if the last one returned fewer bytes."""

FLOWING_BYTES_PER_S = 1_000_000
"""The next read is delayed only if the bytes of the last one arrived at this rate."""


class _TlsOutgoingQueue(OutgoingQueue):
    """Queue of unsent pieces, and of encrypted bytes in the socket.  File ranges are copied and encrypted."""

    __slots__ = ()

    _socket: TlsSocket  # type: ignore[assignment]
    copies_ranges = True

    def __bool__(self) -> bool:
        return self._socket.unsent > 0 or super().__bool__()

    @property
    def held_bytes(self) -> int:
        return self._socket.unsent + super().held_bytes

    @property
    def wants_to_write(self) -> bool:
        return self._socket.unsent > 0 or super().wants_to_write

    def send(self) -> int:
        try:
            if self._socket.unsent and not self._socket.flush():
                return 0
        except OSError:
            self._fail()
        return super().send()


class TlsTransport(EpollTransport):
    """Transport of one TLS connection, created by ``Port.transport``."""

    socket: TlsSocket  # type: ignore[assignment]
    outgoing_queue = _TlsOutgoingQueue

    def __init__(
        self, tls: ListenerTls, resources: Resources, connected: Any, protocol: Any, client: Any, *arguments: Any
    ) -> None:
        self._tls = tls
        encrypted: Any = TlsSocket(connected, tls.serverConnectionForTLS(self))
        super().__init__(resources, encrypted, protocol, client, *arguments)
        self._outgoing: OutgoingQueue = self._new_queue()
        self._gathering: IDelayedCall | None = None
        self._timeout: IDelayedCall | None = resources.reactor.callLater(HANDSHAKE_TIMEOUT_S, self._handshake_timed_out)

    def _read(self, now_s: float, budget_s: float) -> BaseException | None:
        tls, since_s = self.socket, self.connection.last_active_s
        error = super()._read(now_s, budget_s)
        if self._timeout is not None and tls.is_open:
            self._handshake_completed()
            error = super()._read(now_s, budget_s)
        if tls.unsent and not self._is_writing:
            self._send(self._outgoing)
        if self._frame is not None and FLOWING_BYTES_PER_S * (now_s - since_s) <= tls.received < SMALL_READ_BYTES:
            self._gather()
        if error is None and tls.has_ended and self.is_reading and not self._is_queued:
            return main.CONNECTION_DONE
        return error

    def _gather(self) -> None:
        """Delay the next read if much of the request is missing.

        librdkafka sends each small TLS record with its own system call. A broker that is faster than the client
        would wake up for every few records, which costs both of them more than encryption.
        """
        is_large = self._frame_size - self._frame_filled >= MISSING_BYTES_MIN
        if is_large and self._gathering is None and self.is_reading:
            self.reactor.removeReader(self)
            self._gathering = self._resources.reactor.callLater(GATHER_S, self._gathered)

    def _gathered(self) -> None:
        self._gathering = None
        if self.is_reading and not self._is_queued:
            self.reactor.addReader(self)

    def _handshake_completed(self) -> None:
        """Set the user of the connection, unless the client authenticates with SASL."""
        self._cancel_timeout()
        connection = self.connection
        if connection.sasl is not None:
            return
        user = self._tls.user_of(self.socket.connection.get_peer_certificate())
        if user is None:
            connection.drop("no rule of ssl.principal.mapping.rules matches the certificate of the client")
        else:
            connection.user = f"User:{user}"

    def _handshake_timed_out(self) -> None:
        self._timeout = None
        self.connection.drop(f"no TLS handshake within {HANDSHAKE_TIMEOUT_S:g} s")

    def _cancel_timeout(self) -> None:
        timeout, self._timeout = self._timeout, None
        if timeout is not None:
            timeout.cancel()

    def doWrite(self) -> BaseException | None:  # type: ignore[override]
        reason = super().doWrite()
        if reason is main.CONNECTION_DONE and not self.socket.close_notify():
            return None
        return reason

    def connectionLost(self, reason: Failure) -> None:
        if self.connected:
            if self._timeout is not None:
                self._cancel_timeout()
                why = self.socket.error or reason.getErrorMessage()
                log.info("the TLS handshake with {peer} failed: {reason}", peer=self.connection.peer, reason=why)
            if self._gathering is not None:
                self._gathering.cancel()
                self._gathering = None
            self.socket.close_notify()
        super().connectionLost(reason)
