"""HTTP with limits on connections, header sizes and body sizes."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from twisted.internet.interfaces import IDelayedCall
from twisted.web.http import HTTPChannel
from twisted.web.http_headers import Headers
from twisted.web.server import Request

from kreplica.admin.http.callers import ANYONE, Caller
from kreplica.admin.http.calls import BODY_BYTES_MAX
from kreplica.admin.http.json_stream import dumped
from kreplica.admin.http.problems import Problem

IGNORED_BYTES_MAX = 16 * BODY_BYTES_MAX
"""Maximum number of bytes of an oversized body that are read and dropped.

The client receives the error before the connection closes.
"""


LENGTH_DIGITS_MAX = 19
"""Maximum number of digits of a Content-Length; a longer number could exceed 64 bits."""


class BoundedRequest(Request):
    """Keeps one byte more than the maximum body size, so that the handler detects an oversized body.

    :ivar caller: the authenticated sender; set before the request is handled.
    """

    caller: Caller = ANYONE
    _body_bytes = 0

    def gotLength(self, length: int | None) -> None:
        super().gotLength(None if length is None else min(length, BODY_BYTES_MAX + 1))  # type: ignore[no-untyped-call]

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        reason = _target_fault(command, path)
        if reason is None and version == b"HTTP/1.0" and self.requestHeaders.hasHeader(b"transfer-encoding"):
            reason = "HTTP/1.0 does not support Transfer-Encoding"
        if reason is None:
            super().requestReceived(command, path, version)  # type: ignore[no-untyped-call]
        else:
            channel: Any = self.channel
            channel.reject(Problem(400, "INVALID_REQUEST", reason))

    def handleContentChunk(self, data: bytes) -> None:
        remaining = BODY_BYTES_MAX + 1 - self._body_bytes
        self._body_bytes += len(data)
        if remaining > 0:
            super().handleContentChunk(data[:remaining])  # type: ignore[no-untyped-call]
        elif self._body_bytes > IGNORED_BYTES_MAX:
            transport: Any = self.transport
            transport.abortConnection()


def _target_fault(command: bytes, target: bytes) -> str | None:
    """Return the reason to reject a request target; None if it is a path of this server (RFC 9112, 3.2)."""
    if target.startswith(b"/") or (command, target) == (b"OPTIONS", b"*"):
        return None
    return "the request target is not a path, and this server is not a proxy"


def _framing_fault(headers: Headers) -> str | None:
    """Return a description of the first invalid or ambiguous header (RFC 9112); None if all are valid."""
    if len(headers.getRawHeaders(b"host", [])) > 1:
        return "the request has more than one Host header"
    encodings = headers.getRawHeaders(b"transfer-encoding", [])
    if encodings and [encoding.lower() for encoding in encodings] != [b"chunked"]:
        return "the only supported Transfer-Encoding is chunked"
    for name, values in headers.getAllRawHeaders():
        if name.lower() in _READ_AS_TEXT and not all(map(_is_utf8, values)):
            return f"the header {name.decode()} is not UTF-8"
    return None


_READ_AS_TEXT = frozenset(
    (
        b"authorization",
        b"content-type",
        b"host",
        b"if-match",
        b"if-none-match",
        b"last-event-id",
        b"origin",
        b"sec-fetch-mode",
        b"sec-fetch-site",
        b"x-kreplica-forwarded",
        b"x-kreplica-principal",
        b"x-kreplica-principal-host",
    )
)
"""Headers that handlers read as text; Twisted fails to decode other values."""


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


CONNECTIONS_MAX = 1000
"""Maximum number of connections, so that file descriptors remain for Kafka clients and logs."""

ADDRESS_CONNECTIONS_MAX = 500
"""Maximum number of connections of one client address."""

HEADER_SECONDS_MAX = 10.0
"""Timeout from the connection, or a request's first byte, to the end of its headers."""

BODY_SECONDS_MAX = 30.0
"""Timeout from the end of the headers to the end of the body, which is at most 1 MiB."""


class Connections:
    """All connections of one port; at the limit, another connection is closed to make room for a new one.

    The first choice is the oldest connection with a half-sent request, of the client address that has the most of them;
    the second choice is the longest idle connection, chosen in the same way. Half-sent requests therefore cannot block
    the port. Connections with a request in progress are never evicted.

    :ivar evicted: connections closed to make room, or because a request was too slow.
    :ivar refused: connections closed at once, because no other connection could be evicted.
    """

    def __init__(self) -> None:
        self.evicted = 0
        self.refused = 0
        self._open: dict[BoundedChannel, str] = {}
        self._by_address: Counter[str] = Counter()
        self._half_sent: dict[BoundedChannel, None] = {}
        self._idle: dict[BoundedChannel, None] = {}

    @property
    def count(self) -> int:
        """The number of open connections."""
        return len(self._open)

    def admit(self, channel: BoundedChannel, address: str) -> bool:
        """Add a new connection; return False if the limit is reached and no connection can be evicted."""
        if self._by_address[address] >= ADDRESS_CONNECTIONS_MAX:
            has_room = self._make_room(address)
        else:
            has_room = self.count < CONNECTIONS_MAX or self._make_room(None)
        if not has_room:
            self.refused += 1
            return False
        self._open[channel] = address
        self._by_address[address] += 1
        self._half_sent[channel] = None
        return True

    def forget(self, channel: BoundedChannel) -> None:
        """Remove a closed connection; idempotent."""
        address = self._open.pop(channel, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
            self._half_sent.pop(channel, None)
            self._idle.pop(channel, None)

    def mark_receiving(self, channel: BoundedChannel) -> None:
        """Mark that a request has started to arrive."""
        if channel in self._idle:
            del self._idle[channel]
            self._half_sent[channel] = None

    def mark_received(self, channel: BoundedChannel) -> None:
        """Mark that a complete request was received and is being processed."""
        self._half_sent.pop(channel, None)
        self._idle.pop(channel, None)

    def mark_idle(self, channel: BoundedChannel) -> None:
        """Mark that the response was sent and the connection is idle."""
        if channel in self._open:
            self._half_sent.pop(channel, None)
            self._idle[channel] = None

    def _make_room(self, address: str | None) -> bool:
        for waiting in (self._half_sent, self._idle):
            most = address
            if most is None and waiting:
                most = Counter(self._open[each] for each in waiting).most_common(1)[0][0]
            for channel in waiting:
                if self._open[channel] == most:
                    self.evict(channel)
                    return True
        return False

    def evict(self, channel: BoundedChannel) -> None:
        """Close a connection at once."""
        self.evicted += 1
        self.forget(channel)
        transport: Any = channel.transport
        transport.abortConnection()


class BoundedChannel(HTTPChannel):
    """An HTTP/1.1 connection; closed if a request is malformed or too slow, or if there are too many connections.

    Twisted accepts some requests that servers in front of this one may interpret differently (request smuggling). They
    are refused, and the connection is closed, because the following bytes may be part of the body.

    :param connections: all connections of the port.
    """

    def __init__(self, connections: Connections) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._connections = connections
        self._deadline: IDelayedCall | None = None
        self._is_idle = False  # idle after a response
        self._is_rejected = False  # further bytes are dropped

    def connectionMade(self) -> None:
        super().connectionMade()  # type: ignore[no-untyped-call]
        transport: Any = self.transport
        if self._connections.admit(self, getattr(transport.getPeer(), "host", "")):
            self._set_deadline(HEADER_SECONDS_MAX)
        else:
            transport.abortConnection()

    def connectionLost(self, reason: Any = None) -> None:
        self._set_deadline(None)
        self._connections.forget(self)
        super().connectionLost(reason)  # type: ignore[no-untyped-call]

    def dataReceived(self, data: bytes) -> None:
        transport: Any = self.transport
        if self._is_rejected or transport.disconnecting:  # TLS delivers data received before the close
            return
        if self._is_idle:
            self._is_idle = False
            self._connections.mark_receiving(self)
            self._set_deadline(HEADER_SECONDS_MAX)
        super().dataReceived(data)  # type: ignore[no-untyped-call]

    def lineReceived(self, line: bytes) -> None:
        if line[:1] in (b" ", b"\t"):
            self.reject(Problem(400, "INVALID_REQUEST", "a line of the request starts with white space"))
        else:
            super().lineReceived(line)  # type: ignore[no-untyped-call]

    def headerReceived(self, line: bytes) -> bool:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and len(value.strip()) > LENGTH_DIGITS_MAX:
            self.reject(Problem(400, "INVALID_REQUEST", "Content-Length has too many digits"))
            return False
        return bool(super().headerReceived(line))  # type: ignore[no-untyped-call]

    def allHeadersReceived(self) -> None:
        reason = _framing_fault(self.requests[-1].requestHeaders)
        if reason is not None:
            self.reject(Problem(400, "INVALID_REQUEST", reason))
            return
        self._set_deadline(BODY_SECONDS_MAX)
        super().allHeadersReceived()  # type: ignore[no-untyped-call]

    def allContentReceived(self) -> None:
        if self._is_rejected:
            return
        self._set_deadline(None)
        self._is_idle = False
        self._connections.mark_received(self)
        super().allContentReceived()  # type: ignore[no-untyped-call]

    def requestDone(self, request: Any) -> None:
        self._is_idle = True
        self._connections.mark_idle(self)
        super().requestDone(request)  # type: ignore[no-untyped-call]

    def _set_deadline(self, seconds: float | None) -> None:
        """Close the connection unless this is called again within that many seconds; None sets no limit."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if seconds is not None:
            self._deadline = self.callLater(seconds, self._deadline_expired)  # type: ignore[no-untyped-call]

    def _deadline_expired(self) -> None:
        self._deadline = None
        self._connections.evict(self)

    def lineLengthExceeded(self, line: bytes) -> None:
        is_first = re.match(rb"[A-Z]+ /", line) is not None
        status, title = (414, "URI_TOO_LONG") if is_first else (431, "REQUEST_HEADER_FIELDS_TOO_LARGE")
        self.reject(Problem(status, title, f"a line of the request is longer than {self.MAX_LENGTH:,} bytes"))

    def reject(self, problem: Problem) -> None:
        """Respond with an error, drop the following data and close the connection."""
        self._is_rejected = True
        body = dumped(problem.document("")) + b"\n"
        reason = problem.title.replace("_", " ").title().encode()
        transport: Any = self.transport
        transport.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%b" % (problem.status, reason, len(body), body)
        )
        self.loseConnection()  # type: ignore[no-untyped-call]
