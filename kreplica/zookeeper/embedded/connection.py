"""One client connection: framing, request order, and backpressure.

Requests are served in order, directly from the receive buffer.  Reading from the connection pauses while too many
responses wait for the disk, the client does not read its responses, or the transport's buffer is full.  A connection
with many pipelined requests yields to other connections.  A malformed request closes only this connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from typing import Protocol as TypingProtocol

from twisted.internet.interfaces import IHandshakeListener, IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.errors import ProtocolError
from kreplica.zookeeper.digest_md5 import DigestServer
from kreplica.zookeeper.embedded.access import Identity, certificate_identity
from kreplica.zookeeper.embedded.commits import Group
from kreplica.zookeeper.embedded.sessions import Session
from kreplica.zookeeper.errors import AuthFailed
from kreplica.zookeeper.jute import unpack_int32

# Maximum number of responses of one connection that wait for a group's commit; beyond it, reading pauses.
WAITING_RESPONSES_MAX = 10_000
# Limits on the size of unsent responses and watch events: beyond the first, reading pauses; beyond the second, the
# connection is closed, because watch events keep arriving while reading is paused.
UNSENT_BYTES_PAUSE = 4 << 20
UNSENT_BYTES_MAX = 64 << 20

# Maximum time in seconds for which one connection is served before it yields to other connections.
SERVE_S_MAX = 0.05

FOUR_LETTERS_SIZE = 4

# Maximum number of identities of a connection, including its address.
IDENTITIES_MAX = 64


@dataclass(frozen=True, slots=True)
class ServerInterface:
    """Functions and limits that the server provides to its connections.

    :param admit: registers a new connection; returns False if a connection limit is reached.
    :param forget: unregisters a connection.
    :param word: returns the response to a four-letter word, or None if the word is unknown.
    :param frame_size_max: maximum request size in bytes.
    :param seconds: returns the reactor's time in seconds.
    :param call_later: calls a function in a later reactor iteration.
    """

    admit: Callable[[Connection], bool]
    forget: Callable[[Connection], None]
    word: Callable[[bytes], bytes | None]
    frame_size_max: int
    seconds: Callable[[], float]
    call_later: Callable[[Callable[[], None]], object]


class RequestDispatch(TypingProtocol):
    """Serves the requests of connections; implemented by ``Dispatch``."""

    @property
    def server(self) -> ServerInterface:
        """Functions and limits of the server."""

    @property
    def durable(self) -> Group:
        """Group of all durable transactions; responses that depend on it are sent immediately."""

    @property
    def authenticated(self) -> RequestDispatch:
        """Request dispatcher of a connection whose client has authenticated."""

    def respond_to_word(self, connection: Connection, letters: bytes) -> bool:
        """Respond to a four-letter word; return False if the word is unknown."""

    def serve(self, connection: Connection, data: bytes, start: int, end: int) -> None:
        """Serve one frame.

        :raise ProtocolError, struct.error, UnicodeDecodeError: if the request is malformed.
        """


@implementer(IPushProducer, IHandshakeListener)
class Connection(Protocol):
    """A client's connection, created by ``ServerFactory``.

    :ivar session: the client's session; None before the handshake.
    :ivar identities: identities of the client; the first is its address.
    :ivar exchange: the SASL authentication in progress; None if there is none.
    :ivar received: number of received requests, for ``cons``.
    :ivar opened: time at which the connection was created, in seconds on the reactor's clock.
    """

    _log = Logger()

    def __init__(self, dispatch: RequestDispatch, opened: float) -> None:
        self._dispatch = dispatch
        self.opened = opened
        self._unparsed = b""
        self._ready: list[bytes] = []
        self._unsent_size = 0
        self._full = False
        self._paused = False
        self._yielding = False
        self._busy = False
        self._ending = False
        self.closed = False
        self.sink = self._ready
        self.barrier: Group = dispatch.durable
        self.session: Session | None = None
        self.identities: tuple[Identity, ...] = ()
        self.exchange: DigestServer | None = None
        self.address = ""
        self.name = ""
        self.received = 0

    @property
    def session_id(self) -> int:
        """ID of the session; 0 without a session."""
        return 0 if self.session is None else self.session.session_id

    # --- called by Twisted ---

    def connectionMade(self) -> None:
        peer = self._transport.getPeer()
        self.address = getattr(peer, "host", "")
        self.name = f"{self.address}:{getattr(peer, 'port', 0)}"
        self.identities = (("ip", self.address),)
        if not self._dispatch.server.admit(self):
            self._log.warn("refused {name}: the connection limit is reached", name=self.name)
            self.abort()
            return
        self._transport.registerProducer(self, True)

    def handshakeCompleted(self) -> None:
        """Add the subject of the client's TLS certificate, which the handshake has verified."""
        certificate = self._transport.getPeerCertificate()
        if certificate is not None:
            self.add_identity(certificate_identity(certificate), is_verified=True)

    def dataReceived(self, data: bytes) -> None:
        if self._ending:
            return
        self._unparsed = self._unparsed + data if self._unparsed else data
        self._serve()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.closed = True
        self._unparsed = b""
        self._ready.clear()
        self._dispatch.server.forget(self)

    # --- identities ---

    def add_identity(self, identity: Identity, *, is_verified: bool = False) -> None:
        """Add an identity of the client.

        :param is_verified: True if the server has verified the identity, so that the client may send all requests.
        :raise AuthFailed: if the connection has too many identities.
        """
        if identity not in self.identities:
            if len(self.identities) >= IDENTITIES_MAX:
                raise AuthFailed(None, f"a connection has at most {IDENTITIES_MAX} identities")
            self.identities = (*self.identities, identity)
        if is_verified:
            self._dispatch = self._dispatch.authenticated

    # --- requests ---

    def _serve(self) -> None:
        if self._busy or self._paused or self._ending or self.closed:
            return
        self._busy = True
        try:
            self._serve_frames()
            self._flush()
            while self._can_resume():
                self._resume()
                self._serve_frames()
                self._flush()
        except (ProtocolError, struct.error, UnicodeDecodeError) as error:
            self._log.info("closing {name}: malformed request: {error}", name=self.name, error=error)
            self.abort()
        except Exception:
            self._log.failure("closing {name}: unexpected error while serving a request", name=self.name)
            self.abort()
        finally:
            self._busy = False

    def _serve_frames(self) -> None:
        data = self._unparsed
        position, size = 0, len(data)
        server = self._dispatch.server
        size_max, serve_until = server.frame_size_max, server.seconds() + SERVE_S_MAX
        while size - position >= FOUR_LETTERS_SIZE and not self._ending:
            length: int = unpack_int32(data, position)[0]
            if not 0 <= length <= size_max:
                if self.received or position or not self._dispatch.respond_to_word(self, data[:FOUR_LETTERS_SIZE]):
                    raise ProtocolError("frame", f"length {length} is not between 0 and {size_max}")
                self.end()
                return
            start = position + 4
            end = start + length
            if end > size:
                break
            self._dispatch.serve(self, data, start, end)
            position = end
            if self._overloaded():
                self._pause()
                break
            if server.seconds() > serve_until:
                self._pause()
                self._yielding = True
                server.call_later(self._serve_again)
                break
        self._unparsed = data[position:] if position else data

    def _overloaded(self) -> bool:
        return len(self.sink) > WAITING_RESPONSES_MAX or self._unsent_size > UNSENT_BYTES_PAUSE

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pauseProducing()

    def _can_resume(self) -> bool:
        stopped = self._full or self._yielding or self._ending or self.closed
        return self._paused and not stopped and not self._overloaded()

    def _serve_again(self) -> None:
        self._yielding = False
        self._continue()

    def _resume(self) -> None:
        self._paused = False
        self._transport.resumeProducing()

    def _continue(self) -> None:
        if not self._busy and self._can_resume():
            self._resume()
            self._serve()

    # --- responses ---

    def count_unsent(self, size: int) -> None:
        """Count a response or event that was added to the sink; close the connection if too many bytes are unsent."""
        self._unsent_size += size
        if self._unsent_size > UNSENT_BYTES_MAX:
            self._log.warn("closing {name}: the client does not read its responses", name=self.name)
            self.abort()

    def release(self, responses: list[bytes], durable: Group | None) -> None:
        """Send responses whose group is durable (``ResponseQueue``)."""
        if durable is not None:
            self.barrier = durable
            self.sink = self._ready
        if self.closed:
            return
        self._ready += responses
        self._flush()
        self._continue()

    def flush(self) -> None:
        """Send pending events outside of request processing."""
        if not self._busy:
            self._flush()

    def _flush(self) -> None:
        ready = self._ready
        if ready and not self._full and not self.closed:
            data = b"".join(ready) if len(ready) > 1 else ready[0]
            ready.clear()
            if self.sink is ready:
                self._unsent_size = 0
            self._transport.write(data)
        if self._ending and not ready and self.sink is ready and not self.closed:
            self._transport.unregisterProducer()
            self._transport.loseConnection()

    def end(self) -> None:
        """Close the connection after all pending responses."""
        self._ending = True
        self.flush()

    def abort(self) -> None:
        """Close the connection immediately."""
        self._ending = True
        self._unparsed = b""
        if not self.closed:
            self._transport.abortConnection()

    # --- Twisted's push producer: called when the transport's buffer is full or has space again ---

    def pauseProducing(self) -> None:
        self._full = True
        self._pause()

    def resumeProducing(self) -> None:
        self._full = False
        self._flush()
        self._continue()

    def stopProducing(self) -> None:
        self._full = True

    @property
    def _transport(self) -> Any:
        return cast(Any, self.transport)

    def __repr__(self) -> str:
        return f"<{self.name} {self.session or 'without a session'}>"
