"""HTTP with bounds: so many connections, and requests whose lines and bodies are held up to a length."""

from __future__ import annotations

import re
from typing import Any

from twisted.web.http import HTTPChannel
from twisted.web.server import Request

from kreplica.admin.calls import BODY_BYTES_MAX
from kreplica.admin.json_pieces import dumped
from kreplica.admin.problems import Problem

IGNORED_BYTES_MAX = 16 * BODY_BYTES_MAX
"""So much of a body that is too long is read and thrown away, so that its sender hears why; then it is cut off."""


class BoundedRequest(Request):
    """Holds one byte more of a body than is allowed: that it is too long is told by whoever reads it."""

    _body_bytes = 0

    def gotLength(self, length: int | None) -> None:
        super().gotLength(None if length is None else min(length, BODY_BYTES_MAX + 1))  # type: ignore[no-untyped-call]

    def handleContentChunk(self, data: bytes) -> None:
        left = BODY_BYTES_MAX + 1 - self._body_bytes
        self._body_bytes += len(data)
        if left > 0:
            super().handleContentChunk(data[:left])  # type: ignore[no-untyped-call]
        elif self._body_bytes > IGNORED_BYTES_MAX:
            transport: Any = self.transport
            transport.abortConnection()


CONNECTIONS_MAX = 1000
"""More would take the descriptors that clients of Kafka's protocol and logs need."""


class Connections:
    """How many there are of one port."""

    def __init__(self) -> None:
        self.count = 0


class BoundedChannel(HTTPChannel):
    """Says why it ends where a line of a request is too long; ends at once where there are too many.

    :param connections: of all channels of a port.
    """

    def __init__(self, connections: Connections) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._connections = connections

    def connectionMade(self) -> None:
        self._connections.count += 1
        super().connectionMade()  # type: ignore[no-untyped-call]
        if self._connections.count > CONNECTIONS_MAX:
            transport: Any = self.transport
            transport.abortConnection()

    def connectionLost(self, reason: Any = None) -> None:
        self._connections.count -= 1
        super().connectionLost(reason)  # type: ignore[no-untyped-call]

    def lineLengthExceeded(self, line: bytes) -> None:
        is_first = re.match(rb"[A-Z]+ /", line) is not None
        status, title = (414, "URI_TOO_LONG") if is_first else (431, "REQUEST_HEADER_FIELDS_TOO_LARGE")
        problem = Problem(status, title, f"a line of a request has at most {self.MAX_LENGTH:,} bytes")
        body = dumped(problem.document("")) + b"\n"
        transport: Any = self.transport
        transport.write(
            b"HTTP/1.1 %d %b\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n%b" % (status, title.replace("_", " ").title().encode(), len(body), body)
        )
        transport.loseConnection()
