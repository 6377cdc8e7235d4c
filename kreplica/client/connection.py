"""A pipelined connection to one broker: responses arrive in the order of the requests.

The connection neither reconnects nor retries; its owner does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from socket import SO_RCVBUF, SOL_SOCKET, socket
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.error import ConnectError, ConnectingCancelledError, DNSLookupError
from twisted.internet.interfaces import (
    IDelayedCall,
    IHandshakeListener,
    IPushProducer,
    ISSLTransport,
    IStreamClientEndpoint,
    ITCPTransport,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.client.authenticated_session import AuthenticatedSession
from kreplica.client.buffered_receive import receive_in_place
from kreplica.client.client_runtime import EndpointMaker, tcp_endpoint
from kreplica.client.immediate_send import immediate_write
from kreplica.client.outstanding_request import OutstandingRequest
from kreplica.client.tls_handshake import TlsHandshake
from kreplica.client_core.errors import (
    ClientError,
    ConnectionFailed,
    ConnectionLost,
    MalformedResponse,
    RequestTimedOut,
    TooManyRequests,
)
from kreplica.client_core.negotiation import VersionRange, common_version, negotiate_versions, parse_response
from kreplica.errors import ProtocolError
from kreplica.runtime import Reactor
from kreplica.runtime.pacing import disable_pacing
from kreplica.security.sasl.credentials import SaslCredentials
from kreplica.wire.framing import REQUEST_SIZE_MAX, FrameReader, frame, frame_pieces
from kreplica.wire.headers import build_request_header, parse_response_header
from kreplica.wire.message_parsers import MessageParsers
from kreplica.wire.messages import Api

OUTSTANDING_MAX = 1000
SYSTEM_DEFAULT = -1
THROTTLE_S_MAX = 30.0
"""Maximum throttle time that the client respects (KIP-219)."""

CLOSE_TIMEOUT_S = 5.0
"""Maximum time for writing pending data when the connection is closed."""

_CORRELATION_ID_MASK = 0x7FFF_FFFF


def connect(
    reactor: Reactor,
    host: str,
    port: int,
    *,
    client_id: str,
    frame_size_max: int = REQUEST_SIZE_MAX,
    connect_timeout_s: float = 10.0,
    outstanding_max: int = OUTSTANDING_MAX,
    receive_buffer_bytes: int = SYSTEM_DEFAULT,
    endpoint: EndpointMaker = tcp_endpoint,
) -> Deferred[Connection]:
    """Connect to a broker.

    :param client_id: name of the client in the broker's logs and quotas.
    :param frame_size_max: maximum size of a response.
    :param outstanding_max: maximum number of requests in flight.
    :param receive_buffer_bytes: size of the socket's receive buffer; -1 selects the operating system's default.
    :param endpoint: creates the broker's endpoint.
    :return: fires with the connection, or fails with ``ConnectionFailed``; may be cancelled.
    """
    connection = Connection(reactor, f"{host}:{port}", client_id, frame_size_max, outstanding_max)
    target = endpoint(reactor, host, port, connect_timeout_s)
    return Deferred.fromCoroutine(_connect(connection, target, receive_buffer_bytes, connect_timeout_s))


async def _connect(
    connection: Connection, endpoint: IStreamClientEndpoint, receive_buffer_bytes: int, timeout_s: float
) -> Connection:
    factory = Factory.forProtocol(lambda: connection)
    factory.noisy = False
    try:
        await endpoint.connect(factory)
    except ConnectingCancelledError as error:
        raise CancelledError from error
    except (ConnectError, DNSLookupError) as error:
        raise ConnectionFailed(f"{connection.peer}: {error}") from error
    transport = connection.transport
    sasl: SaslCredentials | None = getattr(endpoint, "sasl", None)
    if ISSLTransport.providedBy(transport):
        await connection.handshake.wait(connection, endpoint, timeout_s)
    if receive_buffer_bytes > 0:
        transport.getHandle().setsockopt(SOL_SOCKET, SO_RCVBUF, receive_buffer_bytes)
    plain = getattr(transport, "socket", None)
    if isinstance(plain, socket) and transport.getHost().host == transport.getPeer().host:
        disable_pacing(plain)
    if sasl is not None:
        await connection.session.authenticate(sasl, timeout_s)
    return connection


@implementer(IPushProducer, IHandshakeListener)
class Connection(Protocol):
    """Pipelined connection, created by ``connect`` and closed by its owner.

    Once ``closed`` is True, all requests in flight have failed.  A malformed response closes the connection, because
    later responses could not be matched to requests.

    :param peer: the broker's address, for error messages.
    :ivar handshake: the TLS handshake, if the connection uses TLS.
    :ivar session: the authenticated session, if the client authenticates.
    """

    transport: Any
    _write: Callable[[bytes], None]

    def __init__(
        self, reactor: Reactor, peer: str, client_id: str, frame_size_max: int, outstanding_max: int = OUTSTANDING_MAX
    ) -> None:
        self.peer = peer
        self.closed = False
        self.versions: dict[int, VersionRange] = {}
        self._reactor = reactor
        self._client_id = client_id
        self._outstanding_max = outstanding_max
        self._frames = FrameReader(frame_size_max)
        self._parsers = MessageParsers()
        self._outstanding: deque[OutstandingRequest] = deque()
        self._next_correlation_id = 0
        self._congested = False
        self._throttle_timer: IDelayedCall | None = None
        self._delayed: list[tuple[bytes, OutstandingRequest | None]] = []
        self._writable_waiters: list[Deferred[dict[str, Any]]] = []
        self._closing: list[Deferred[None]] = []
        self._abort_timer: IDelayedCall | None = None
        self._lost = False
        self.handshake = TlsHandshake(reactor)
        self.session = AuthenticatedSession(reactor, self)

    def request(
        self,
        api: Api,
        version: int,
        body: dict[str, Any] | bytes,
        *,
        timeout_s: float = 30.0,
        expects_response: bool = True,
    ) -> Deferred[dict[str, Any]]:
        """Send a request without waiting for earlier responses; delay it while the broker throttles this client.

        :param body: fields for ``Schema.build``, or encoded bytes.
        :param timeout_s: time to wait for the response, after which the connection is closed.
        :param expects_response: False if the broker sends no response (Produce with acks=0).
        :return: fires with the response's body or, for a request without a response, with ``{}`` once throttling
            (KIP-219) and back-pressure allow another one; fails with a ``ClientError``.  Cancelling it does not affect
            other requests.
        :raise ProtocolError: the body does not match the message's schema; nothing was sent.
        """
        if self.closed:
            return fail(ConnectionLost(f"{self.peer}: the connection is closed"))
        if len(self._outstanding) + len(self._writable_waiters) >= self._outstanding_max:
            return fail(TooManyRequests(f"{self.peer}: {self._outstanding_max} requests are in flight"))
        correlation_id = self._next_correlation_id
        header_version = api.request_header_version(version)
        header = build_request_header(header_version, api.key, version, correlation_id, self._client_id)
        if isinstance(body, bytes):
            data = frame(header + body)
        else:
            data = b"".join(frame_pieces(api.request.build_pieces(version, body, header)))
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_ID_MASK
        request = OutstandingRequest(api, version, correlation_id, timeout_s) if expects_response else None
        if request is not None:
            self._outstanding.append(request)
        if self._throttle_timer is None:
            self._send(data, request)
        else:
            self._delayed.append((data, request))
        if request is None:
            return self._writable()
        assert request.deferred is not None
        return request.deferred

    def negotiate(self, timeout_s: float = 30.0) -> Deferred[dict[int, VersionRange]]:
        """Request the broker's API versions (KIP-35), from which ``version`` chooses.

        :param timeout_s: time to wait for the response, after which the connection is closed.
        :return: fires with API key -> (lowest, highest); fails with a ``ClientError``, or with ``KafkaError`` if the
            broker rejected the request.
        """
        return Deferred.fromCoroutine(self._negotiate(timeout_s))

    def version(self, api: Api, at_most: int | None = None) -> int:
        """Return the highest version of an API that both the client and the broker support.

        :param at_most: highest version to use.
        :raise UnsupportedVersion: there is no common version, or versions have not been negotiated.
        """
        return common_version(api, self.versions.get(api.key), at_most, self.peer)

    def send_at_once(self) -> None:
        """Write later requests to the socket within ``request``; for connections that rarely send several at a time."""
        self._write = immediate_write(self.transport)

    def close(self) -> Deferred[None]:
        """Close the connection after writing pending data; requests in flight fail with ``ConnectionLost``.

        May be called repeatedly.

        :return: fires when the connection is closed, after at most ``CLOSE_TIMEOUT_S``.
        """
        if self._lost:
            return succeed(None)
        closed: Deferred[None] = Deferred()
        self._closing.append(closed)
        if not self.closed:
            self._abort_timer = self._reactor.callLater(CLOSE_TIMEOUT_S, self.transport.abortConnection)
            failed = self._stop_accepting()
            self.transport.loseConnection()
            self._fail(failed, f"{self.peer}: closed by the client")
        return closed

    def abort(self) -> None:
        """Close the connection immediately; requests in flight fail with ``ConnectionLost``."""
        if not self.closed:
            failed = self._stop_accepting()
            self.transport.abortConnection()
            self._fail(failed, f"{self.peer}: aborted by the client")

    # --- called by the transport ---

    def connectionMade(self) -> None:
        """Configure the socket and register for back-pressure."""
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
            self.transport.setTcpKeepAlive(True)
        self.transport.registerProducer(self, True)
        self._write = self.transport.write
        receive_in_place(self.transport, lambda: self._frames.receive_buffer, self._filled, self.dataReceived)

    def handshakeCompleted(self) -> None:
        """Continue after the TLS handshake."""
        self.handshake.completed()

    def _filled(self, size: int) -> None:
        """Process bytes received in place."""
        complete_frame = self._frames.received(size)
        if complete_frame is not None and not self.closed:
            self._process_frames([complete_frame])

    def dataReceived(self, data: bytes) -> None:
        """Process received frames."""
        if not self.closed:
            self._process_frames(self._frames.feed(data))

    def _process_frames(self, frames: Iterable[memoryview]) -> None:
        try:
            for frame in frames:
                self._process_response(frame)
                if self.closed:
                    return
        except ProtocolError as error:
            self._break(MalformedResponse(f"{self.peer}: {error}"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Fail requests in flight and fire the Deferreds of ``close``."""
        self._lost = True
        if self._abort_timer is not None and self._abort_timer.active():
            self._abort_timer.cancel()
        self.handshake.failed(reason)
        failed = [] if self.closed else self._stop_accepting()
        closing, self._closing = self._closing, []
        self._fail(failed, f"{self.peer}: {reason.getErrorMessage()}")
        for closed in closing:
            if not closed.called:
                closed.callback(None)

    def pauseProducing(self) -> None:
        """Hold back the Deferreds of requests without a response, because the transport's buffer is full."""
        self._congested = True

    def resumeProducing(self) -> None:
        """Fire the Deferreds that were held back, because the transport's buffer has free space again."""
        self._congested = False
        self._notify_writable()

    def stopProducing(self) -> None:
        """Do nothing: ``connectionLost`` follows."""

    # --- internals ---

    async def _negotiate(self, timeout_s: float) -> dict[int, VersionRange]:
        self.versions = await negotiate_versions(partial(self.request, timeout_s=timeout_s))
        return self.versions

    def _send(self, data: bytes, request: OutstandingRequest | None) -> None:
        if request is not None:
            request.timer = self._reactor.callLater(request.timeout_s, self._timed_out, request)
        self._write(data)

    def _throttle(self, seconds: float) -> None:
        """Delay further requests for the throttle time."""
        seconds = min(seconds, THROTTLE_S_MAX)
        if self._throttle_timer is None:
            self._throttle_timer = self._reactor.callLater(seconds, self._send_delayed)
        elif self._throttle_timer.getTime() < self._reactor.seconds() + seconds:
            self._throttle_timer.reset(seconds)

    def _send_delayed(self) -> None:
        """Send the delayed requests, except those that were cancelled."""
        self._throttle_timer = None
        delayed, self._delayed = self._delayed, []
        for data, request in delayed:
            if request is not None and request.deferred is None:
                self._outstanding.remove(request)
            else:
                self._send(data, request)
        if not self._congested:
            self._notify_writable()

    def _writable(self) -> Deferred[dict[str, Any]]:
        if not self._congested and self._throttle_timer is None:
            return succeed({})
        waiter: Deferred[dict[str, Any]] = Deferred()
        self._writable_waiters.append(waiter)
        return waiter

    def _notify_writable(self) -> None:
        """Fire the Deferreds of requests without a response."""
        if self._throttle_timer is None:
            waiters, self._writable_waiters = self._writable_waiters, []
            for waiter in waiters:
                if not waiter.called:  # a callback may cancel another request
                    waiter.callback({})

    def _process_response(self, frame: memoryview) -> None:
        if not self._outstanding:
            raise ProtocolError("ResponseHeader", "response received without a request in flight")
        request = self._outstanding[0]
        header_version = request.api.response_header_version(request.version)
        correlation_id, position = parse_response_header(header_version, frame)
        if correlation_id != request.correlation_id:
            raise ProtocolError("ResponseHeader.correlation_id", f"{correlation_id}, not {request.correlation_id}")
        body = None
        if request.deferred is not None:
            body = parse_response(self._parsers, request.api, request.version, frame, position)
            throttle_ms = body.get("throttle_time_ms", 0)
            if throttle_ms > 0:
                self._throttle(throttle_ms / 1000)
        self._outstanding.popleft()
        deferred = request.detach()
        if deferred is not None and body is not None:
            deferred.callback(body)

    def _timed_out(self, request: OutstandingRequest) -> None:
        text = f"{self.peer}: no response to {request.api.name} within {request.timeout_s:g} s"
        self._break(RequestTimedOut(text), request)

    def _break(self, error: ClientError, request: OutstandingRequest | None = None) -> None:
        """Close the connection; fail one request (by default the oldest) with the error, others with ConnectionLost."""
        if request is None and self._outstanding:
            request = self._outstanding[0]
        failed_request = None if request is None else request.detach()
        failed = self._stop_accepting()
        self.transport.abortConnection()
        if failed_request is not None:
            failed_request.errback(error)
        self._fail(failed, str(error))

    def _stop_accepting(self) -> list[Deferred[dict[str, Any]]]:
        """Stop accepting requests; return the Deferreds to fail."""
        self.closed = True
        self.session.end()
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
            self._throttle_timer = None
        self._delayed.clear()
        self.transport.unregisterProducer()
        deferreds = [request.detach() for request in self._outstanding]
        failed = [deferred for deferred in deferreds if deferred is not None] + self._writable_waiters
        self._outstanding.clear()
        self._writable_waiters = []
        return failed

    def _fail(self, requests: list[Deferred[dict[str, Any]]], reason: str) -> None:
        for request in requests:
            if not request.called:  # a callback may cancel another request
                request.errback(ConnectionLost(reason))
