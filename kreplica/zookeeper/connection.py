"""One TCP connection of a session: sends requests, matches responses in order, pings, and detects a silent server.

An instance is used from the handshake until the connection is lost.  The session, its watches and its queued requests
outlive it and belong to ``session``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from twisted.internet import tcp
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IHandshakeListener, ITCPTransport
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.errors import ProtocolError
from kreplica.runtime import Reactor
from kreplica.security.tls.handshake_errors import is_tls_failure, tls_reason
from kreplica.zookeeper.errors import MarshallingError, ZooKeeperError, error_of
from kreplica.zookeeper.framing import FrameSplitter
from kreplica.zookeeper.jute import Reader
from kreplica.zookeeper.records import (
    REPLY_HEADER,
    REQUEST_FRAME_HEADER,
    XID_AUTH,
    XID_PING,
    XID_SET_WATCHES,
    XID_WATCH_EVENT,
    ConnectRequest,
    ConnectResponse,
    Opcode,
    WatchEvent,
    decode_watch_event,
    frame,
    request_frame,
)

# Decodes a response body from (buffer, start, end); if it raises a ZooKeeperError, the request fails with that error.
Decode: TypeAlias = Callable[[bytes, int, int], Any]
# Called with the response's error code (0 is success) before the request completes, to register a watch.
OnResponse: TypeAlias = Callable[[int], None]
# Xid, size of the frame, Deferred, decoder, the caller's path, callback that registers a watch.
UnansweredRequest: TypeAlias = tuple[int, int, "Deferred[Any]", Decode, str | None, OnResponse | None]

_pack_header = REQUEST_FRAME_HEADER.pack
_unpack_reply = REPLY_HEADER.unpack_from
_REPLY_HEADER_SIZE = REPLY_HEADER.size
_XID_MAX = 0x7FFFFFFF
# Number of checks per session timeout while a send backlog delays a ping.
_BACKLOG_CHECKS = 30


class ConnectionOwner(Protocol):
    """Callbacks of a connection to its session; each of them may close the connection."""

    def handshake_done(self, connection: Connection, response: ConnectResponse) -> None: ...

    def watch_fired(self, event: WatchEvent) -> None: ...

    def auth_completed(self, connection: Connection, error: ZooKeeperError | None) -> None:
        """Called when the server has accepted (``error`` is None) or rejected one of the client's credentials."""

    def tls_established(self) -> None: ...

    def connection_lost(self, connection: Connection, reason: str, *, tls_failed: bool = False) -> None: ...


@implementer(IHandshakeListener)
class Connection(TwistedProtocol):
    """Protocol of one connection; ``send`` may be called between ``handshake_done`` and ``connection_lost``.

    :param handshake: first frame of the connection.
    :param frame_size_max: maximum size of a received frame in bytes.
    """

    def __init__(
        self, reactor: Reactor, owner: ConnectionOwner, handshake: ConnectRequest, frame_size_max: int
    ) -> None:
        self._reactor = reactor
        self._owner = owner
        self._handshake: ConnectRequest | None = handshake
        self._splitter = FrameSplitter(frame_size_max)
        self._out: list[bytes] = []
        self._flushing: IDelayedCall | None = None
        self._reading = False
        # Writes to the socket immediately: waiting for the next reactor iteration delays a single request.
        self._send_now: Callable[[bytes], int | Exception] | None = None
        self._buffered = False  # True if the transport may hold bytes that the socket has not accepted
        self._ended = False
        self._reason = ""
        self._xid = 0
        self._timer: IDelayedCall | None = None
        self._timeout_s = 0.0
        self._received_at = self._ping_at = reactor.seconds()
        self._pings_sent_at: deque[float] = deque()
        #: Time at which the latest handshake or ping with a response was sent; the server restarted the session timeout
        #: then or later.
        self.confirmed_at = self._received_at
        #: Requests without a response yet, oldest first.
        self.unanswered: deque[UnansweredRequest] = deque()
        #: Their total size in bytes.
        self.unanswered_bytes = 0
        self.last_zxid = handshake.last_zxid_seen

    # Called by Twisted.

    def connectionMade(self) -> None:
        assert self.transport is not None
        assert self._handshake is not None
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpNoDelay(True)  # writes are already batched, one per reactor iteration
        if isinstance(self.transport, tcp.Connection):
            self._send_now = self.transport.writeSomeData
            self.transport.protocol = self  # bypasses the endpoint's wrapper, which forwards every call
        self.confirmed_at = self._received_at = self._reactor.seconds()
        self.transport.write(frame(self._handshake.encode()))

    def handshakeCompleted(self) -> None:
        self._owner.tls_established()

    def dataReceived(self, data: bytes) -> None:
        self._received_at = self._reactor.seconds()
        self._reading = True
        had_unanswered = len(self.unanswered)
        try:
            self._read_frames(data)
        except ProtocolError as error:
            self.abort(f"the server sent malformed bytes: {error}")
        self._reading = False
        if had_unanswered and not self.unanswered:
            self._buffered = False  # all requests have responses, so the send buffer is empty
        if self._out:
            self._flush()

    def connectionLost(self, reason: Failure | None = None) -> None:
        self._ended = True
        for call in (self._timer, self._flushing):
            if call is not None and call.active():
                call.cancel()
        tls_failed = reason is not None and is_tls_failure(reason.value) and not self._reason
        text = self._reason or (tls_reason(reason.value) if reason is not None else "")
        self._owner.connection_lost(self, text, tls_failed=tls_failed)

    # Called by the session.

    def keep_alive(self, timeout_s: float) -> None:
        """Ping every third of the session timeout; close the connection after two thirds without received data."""
        self._timeout_s = timeout_s
        self._ping_at = self._reactor.seconds() + timeout_s / 3
        self._schedule_check()

    def send(
        self,
        opcode: int,
        body: bytes,
        deferred: Deferred[Any],
        decode: Decode,
        path: str | None,
        on_response: OnResponse | None,
    ) -> None:
        """Send a request; the Deferred receives the decoded response or the error."""
        xid = self._xid = self._xid + 1 if self._xid < _XID_MAX else 1
        size = len(body) + 8
        self.unanswered_bytes += size
        self.unanswered.append((xid, size, deferred, decode, path, on_response))
        out = self._out
        if not out and not self._reading:
            self._flushing = self._reactor.callLater(0, self._flush)
        out += (_pack_header(size, xid, opcode), body)

    def send_reserved(self, xid: int, opcode: Opcode, body: bytes) -> None:
        """Send a message with a reserved xid (ping, auth, setWatches)."""
        if not self._out and not self._reading:
            self._flushing = self._reactor.callLater(0, self._flush)
        self._out.append(request_frame(xid, opcode, body))

    def end(self, reason: str) -> None:
        """Close the connection after sending the requests written so far."""
        self._reason = self._reason or reason
        if not self._ended and self.transport is not None:
            self._flush()
            self.transport.loseConnection()

    def abort(self, reason: str) -> None:
        """Close the connection immediately and ignore data received later."""
        self._reason = self._reason or reason
        self._ended = True
        transport: Any = self.transport
        if transport is not None:
            transport.abortConnection()

    def fail_outstanding(self, error: Callable[[str | None], ZooKeeperError]) -> None:
        """Fail all unanswered requests, oldest first."""
        unanswered, self.unanswered = self.unanswered, deque()
        self.unanswered_bytes = 0
        for _xid, _size, deferred, _decode, path, _on_response in unanswered:
            deferred.errback(error(path))

    def _flush(self) -> None:
        self._flushing = None
        out, self._out = self._out, []
        if not out or self._ended or self.transport is None:
            return
        data = b"".join(out)
        if self._send_now is not None and not self._buffered:
            sent = self._send_now(data)
            if sent == len(data):
                return
            if isinstance(sent, int):
                data = data[sent:]
            self._buffered = True
        self.transport.write(data)

    def _read_frames(self, data: bytes) -> None:
        unanswered = self.unanswered
        for buffer, start, end in self._splitter.frames(data):
            if self._ended:
                return
            if self._handshake is not None:
                self._handshake = None
                self._owner.handshake_done(self, ConnectResponse.decode(Reader(buffer, start, end, "connect response")))
                continue
            body = start + _REPLY_HEADER_SIZE
            if body > end:
                raise ProtocolError("reply", f"only {end - start} bytes")
            xid, zxid, error = _unpack_reply(buffer, start)
            if xid < 0:
                self._read_reserved(xid, error, Reader(buffer, body, end, "event"))
                continue
            if not unanswered or unanswered[0][0] != xid:
                raise ProtocolError("reply", f"response to request {xid}, which is not the oldest unanswered one")
            if zxid > self.last_zxid:
                self.last_zxid = zxid
            _xid, size, deferred, decode, path, on_response = unanswered.popleft()
            self.unanswered_bytes -= size
            if on_response is not None:
                on_response(error)
            if error:
                deferred.errback(error_of(error, path))
                continue
            try:
                result = decode(buffer, body, end)
            except ZooKeeperError as failed:
                deferred.errback(failed)
            except ProtocolError as malformed:
                self.abort(f"the server sent malformed bytes: {malformed}")
                deferred.errback(MarshallingError(path, f"malformed response: {malformed}"))
            else:
                deferred.callback(result)

    def _read_reserved(self, xid: int, error: int, reader: Reader) -> None:
        if xid == XID_PING:
            if self._pings_sent_at:
                self.confirmed_at = self._pings_sent_at.popleft()
        elif xid == XID_WATCH_EVENT:
            self._owner.watch_fired(decode_watch_event(reader))
        elif xid == XID_AUTH:
            self._owner.auth_completed(self, error_of(error) if error else None)
        elif xid != XID_SET_WATCHES:
            raise ProtocolError("reply", f"the server sent the unknown xid {xid}")
        elif error:
            self.abort(f"the server did not restore the watches: {error_of(error)}")

    def _schedule_check(self) -> None:
        silent_at = self._received_at + self._timeout_s * 2 / 3
        delay = min(silent_at, self._ping_at) - self._reactor.seconds()
        self._timer = self._reactor.callLater(max(delay, 0.0), self._check)

    def _check(self) -> None:
        now = self._reactor.seconds()
        if now >= self._received_at + self._timeout_s * 2 / 3:
            self.abort(f"the server has been silent for {now - self._received_at:.1f} s")
            return
        if now >= self._ping_at:
            # Behind a backlog the ping would be late, and its response would wrongly confirm the session.
            if self._buffered:
                self._ping_at = now + self._timeout_s / _BACKLOG_CHECKS
            else:
                self._ping_at = now + self._timeout_s / 3
                self._pings_sent_at.append(now)
                self.send_reserved(XID_PING, Opcode.PING, b"")
        self._schedule_check()
