"""One connection to one broker: requests go out as they are made, answers come back in the same order.

It neither connects again nor sends again: whoever owns it knows what its requests mean, and does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from socket import SO_RCVBUF, SOL_SOCKET, socket
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.error import ConnectError, ConnectingCancelledError, DNSLookupError
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IStreamClientEndpoint, ITCPTransport
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.client.buffered_receive import receive_in_place
from kreplica.client.client_runtime import EndpointMaker, tcp_endpoint
from kreplica.client_core.errors import (
    ClientError,
    ConnectionFailed,
    ConnectionLost,
    MalformedAnswer,
    RequestTimedOut,
    TooManyRequests,
)
from kreplica.client_core.negotiation import VersionRange, common_version, negotiate_versions, parse_answer
from kreplica.errors import ProtocolError
from kreplica.runtime import Reactor
from kreplica.runtime.pacing import do_without_pacing
from kreplica.wire.framing import REQUEST_SIZE_MAX, FrameReader, frame, frame_pieces
from kreplica.wire.headers import build_request_header, parse_response_header
from kreplica.wire.messages import Api

OUTSTANDING_MAX = 1000
LEFT_TO_THE_SYSTEM = -1
SILENCE_S_MAX = 30.0
"""A broker's wish to hear nothing for a while (KIP-219) is granted for so long at most."""

CLOSE_TIMEOUT_S = 5.0
"""How long a connection that is closed may take to write what was given to it."""

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
    receive_buffer_bytes: int = LEFT_TO_THE_SYSTEM,
    endpoint: EndpointMaker = tcp_endpoint,
) -> Deferred[Connection]:
    """Connect to a broker.

    :param client_id: by which the broker knows the client in its logs and quotas.
    :param frame_size_max: bytes of the largest answer taken.
    :param outstanding_max: requests that may be without an answer at a time.
    :param receive_buffer_bytes: of the socket; -1 leaves it to the operating system, which adapts it.
    :param endpoint: makes the way to the broker.
    :return: fires with the connection, or fails with ``ConnectionFailed``; cancelling it gives the attempt up.
    """
    connection = Connection(reactor, f"{host}:{port}", client_id, frame_size_max, outstanding_max)
    way = endpoint(reactor, host, port, connect_timeout_s)
    return Deferred.fromCoroutine(_connect(connection, way, receive_buffer_bytes))


async def _connect(connection: Connection, endpoint: IStreamClientEndpoint, receive_buffer_bytes: int) -> Connection:
    factory = Factory.forProtocol(lambda: connection)
    factory.noisy = False
    try:
        await endpoint.connect(factory)
    except ConnectingCancelledError as error:
        raise CancelledError from error
    except (ConnectError, DNSLookupError) as error:
        raise ConnectionFailed(f"{connection.peer}: {error}") from error
    transport = connection.transport
    if receive_buffer_bytes > 0:
        transport.getHandle().setsockopt(SOL_SOCKET, SO_RCVBUF, receive_buffer_bytes)
    plain = getattr(transport, "socket", None)
    if isinstance(plain, socket) and transport.getHost().host == transport.getPeer().host:
        do_without_pacing(plain)
    return connection


class _Outstanding:
    """A request that was sent; ``answered`` is None once nobody waits for it."""

    __slots__ = ("answered", "api", "correlation_id", "timeout_s", "timer", "version")

    def __init__(self, api: Api, version: int, correlation_id: int, timeout_s: float) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.timeout_s = timeout_s
        self.answered: Deferred[dict[str, Any]] | None = Deferred(self._cancelled)
        self.timer: IDelayedCall | None = None

    def taken(self) -> Deferred[dict[str, Any]] | None:
        """End the wait, and give the Deferred that is to be fired."""
        answered, self.answered = self.answered, None
        if self.timer is not None and self.timer.active():
            self.timer.cancel()
        return answered

    def _cancelled(self, _: Deferred[dict[str, Any]]) -> None:
        self.taken()


@implementer(IPushProducer)
class Connection(Protocol):
    """A pipelined connection, made by ``connect`` and owned by its caller, who closes it.

    Once ``closed`` it stays so, and every request that was under way has failed.  An answer that cannot be understood
    ends the connection, because nothing behind it in the stream can be trusted.

    :param peer: the broker's address, for the text of errors.
    """

    transport: Any

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
        self._outstanding: deque[_Outstanding] = deque()
        self._next_correlation_id = 0
        self._congested = False
        self._silence: IDelayedCall | None = None
        self._held: list[tuple[bytes, _Outstanding | None]] = []
        self._unwritten: list[Deferred[dict[str, Any]]] = []
        self._closing: list[Deferred[None]] = []
        self._abort_timer: IDelayedCall | None = None
        self._lost = False

    def request(
        self, api: Api, version: int, body: dict[str, Any] | bytes, *, timeout_s: float = 30.0, answered: bool = True
    ) -> Deferred[dict[str, Any]]:
        """Send a request behind those that are under way; while the broker wants to hear nothing (KIP-219), later.

        :param body: as ``Schema.build`` takes it, or as it gives it.
        :param timeout_s: without an answer for so long after it was sent the connection is closed.
        :param answered: False where the broker sends no answer (Produce with acks=0).
        :return: fires with the answer's body, with ``{}`` when a request without answer may leave; fails with a
            ``ClientError``.  Cancelling it leaves the requests behind it as they are.
        :raise ProtocolError: the body does not fit the message, and nothing was sent.
        """
        if self.closed:
            return fail(ConnectionLost(f"{self.peer}: the connection is closed"))
        if len(self._outstanding) + len(self._unwritten) >= self._outstanding_max:
            return fail(TooManyRequests(f"{self.peer}: {self._outstanding_max} requests are under way"))
        correlation_id = self._next_correlation_id
        header_version = api.request_header_version(version)
        header = build_request_header(header_version, api.key, version, correlation_id, self._client_id)
        if isinstance(body, bytes):
            data = frame(header + body)
        else:
            data = b"".join(frame_pieces(api.request.build_pieces(version, body, header)))
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_ID_MASK
        request = _Outstanding(api, version, correlation_id, timeout_s) if answered else None
        if request is not None:
            self._outstanding.append(request)
        if self._silence is None:
            self._send(data, request)
        else:
            self._held.append((data, request))
        if request is None:
            return self._when_written()
        assert request.answered is not None
        return request.answered

    def negotiate(self, timeout_s: float = 30.0) -> Deferred[dict[int, VersionRange]]:
        """Ask the broker which versions of which APIs it speaks (KIP-35); ``version`` chooses among them from then on.

        :param timeout_s: without an answer for so long the connection is closed.
        :return: fires with (lowest, highest) by API key; fails with a ``ClientError``, or with ``KafkaError`` where the
            broker refuses even the oldest version of the question.
        """
        return Deferred.fromCoroutine(self._negotiate(timeout_s))

    def version(self, api: Api, at_most: int | None = None) -> int:
        """The highest version of an API that both sides speak.

        :param at_most: the highest that the caller wants, or None.
        :raise UnsupportedVersion: there is none, or nothing was negotiated.
        """
        return common_version(api, self.versions.get(api.key), at_most, self.peer)

    def close(self) -> Deferred[None]:
        """Close the connection once what was given to it is written; what is under way fails with ``ConnectionLost``.

        :return: fires when the connection is gone, at the latest after ``CLOSE_TIMEOUT_S``; may be called repeatedly.
        """
        if self._lost:
            return succeed(None)
        closed: Deferred[None] = Deferred()
        self._closing.append(closed)
        if not self.closed:
            self._abort_timer = self._reactor.callLater(CLOSE_TIMEOUT_S, self.transport.abortConnection)
            failed = self._give_up()
            self.transport.loseConnection()
            self._fail(failed, f"{self.peer}: closed from this side")
        return closed

    def abort(self) -> None:
        """End the connection at once, whatever was given to it; what is under way fails with ``ConnectionLost``."""
        if not self.closed:
            failed = self._give_up()
            self.transport.abortConnection()
            self._fail(failed, f"{self.peer}: given up from this side")

    # --- called by the transport ---

    def connectionMade(self) -> None:
        """Send each request at once, and learn from the transport when its buffer is full."""
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)
            self.transport.setTcpKeepAlive(True)
        self.transport.registerProducer(self, True)
        receive_in_place(self.transport, lambda: self._frames.room, self._filled)

    def _filled(self, size: int) -> None:
        """A part of an answer was received in its place."""
        whole = self._frames.fill(size)
        if whole is not None and not self.closed:
            self._take([whole])

    def dataReceived(self, data: bytes) -> None:
        """Give each answer to the oldest request."""
        if not self.closed:
            self._take(self._frames.feed(data))

    def _take(self, frames: Iterable[memoryview]) -> None:
        try:
            for frame in frames:
                self._answer(frame)
                if self.closed:
                    return
        except ProtocolError as error:
            self._break(MalformedAnswer(f"{self.peer}: {error}"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Fail what is under way, and tell those who closed."""
        self._lost = True
        if self._abort_timer is not None and self._abort_timer.active():
            self._abort_timer.cancel()
        failed = [] if self.closed else self._give_up()
        closing, self._closing = self._closing, []
        self._fail(failed, f"{self.peer}: {reason.getErrorMessage()}")
        for closed in closing:
            if not closed.called:
                closed.callback(None)

    def pauseProducing(self) -> None:
        """The transport's buffer is full: requests without answer wait."""
        self._congested = True

    def resumeProducing(self) -> None:
        """The transport's buffer is empty again."""
        self._congested = False
        self._tell_written()

    def stopProducing(self) -> None:
        """The transport is gone: ``connectionLost`` says so too."""

    # --- internals ---

    async def _negotiate(self, timeout_s: float) -> dict[int, VersionRange]:
        self.versions = await negotiate_versions(partial(self.request, timeout_s=timeout_s))
        return self.versions

    def _send(self, data: bytes, request: _Outstanding | None) -> None:
        if request is not None:
            request.timer = self._reactor.callLater(request.timeout_s, self._timed_out, request)
        self.transport.write(data)

    def _be_silent(self, seconds: float) -> None:
        """Hold back what comes now, until the time is over, or the one that was given before."""
        seconds = min(seconds, SILENCE_S_MAX)
        if self._silence is None:
            self._silence = self._reactor.callLater(seconds, self._speak)
        elif self._silence.getTime() < self._reactor.seconds() + seconds:
            self._silence.reset(seconds)

    def _speak(self) -> None:
        """Send what was held back, save for what nobody waits for any more."""
        self._silence = None
        held, self._held = self._held, []
        for data, request in held:
            if request is not None and request.answered is None:
                self._outstanding.remove(request)
            else:
                self._send(data, request)
        if not self._congested:
            self._tell_written()

    def _when_written(self) -> Deferred[dict[str, Any]]:
        if not self._congested and self._silence is None:
            return succeed({})
        written: Deferred[dict[str, Any]] = Deferred()
        self._unwritten.append(written)
        return written

    def _tell_written(self) -> None:
        """Tell who sent requests without answer; those behind a silence wait on."""
        if self._silence is None:
            written, self._unwritten = self._unwritten, []
            for request in written:
                if not request.called:  # what one hears may have it cancel another
                    request.callback({})

    def _answer(self, frame: memoryview) -> None:
        if not self._outstanding:
            raise ProtocolError("ResponseHeader", "an answer that nobody asked for")
        request = self._outstanding[0]
        header_version = request.api.response_header_version(request.version)
        correlation_id, position = parse_response_header(header_version, frame)
        if correlation_id != request.correlation_id:
            raise ProtocolError("ResponseHeader.correlation_id", f"{correlation_id}, not {request.correlation_id}")
        body = None
        if request.answered is not None:
            body = parse_answer(request.api, request.version, frame, position)
            throttle_ms = body.get("throttle_time_ms", 0)
            if throttle_ms > 0:
                self._be_silent(throttle_ms / 1000)
        self._outstanding.popleft()
        answered = request.taken()
        if answered is not None and body is not None:
            answered.callback(body)

    def _timed_out(self, request: _Outstanding) -> None:
        text = f"{self.peer}: no answer to {request.api.name} within {request.timeout_s:g} s"
        self._break(RequestTimedOut(text), request)

    def _break(self, error: ClientError, request: _Outstanding | None = None) -> None:
        """End a connection that cannot go on: the request that is to blame is told why (by default the oldest)."""
        if request is None and self._outstanding:
            request = self._outstanding[0]
        blamed = None if request is None else request.taken()
        failed = self._give_up()
        self.transport.abortConnection()
        if blamed is not None:
            blamed.errback(error)
        self._fail(failed, str(error))

    def _give_up(self) -> list[Deferred[dict[str, Any]]]:
        """Take no more, and give the Deferreds that are to be failed."""
        self.closed = True
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        self._held.clear()
        self.transport.unregisterProducer()
        taken = [request.taken() for request in self._outstanding]
        failed = [deferred for deferred in taken if deferred is not None] + self._unwritten
        self._outstanding.clear()
        self._unwritten = []
        return failed

    def _fail(self, requests: list[Deferred[dict[str, Any]]], reason: str) -> None:
        for request in requests:
            if not request.called:  # what one hears may have it cancel another
                request.errback(ConnectionLost(reason))
