"""One ZooKeeper session: connects to a server, keeps the session alive, fails over to other servers, and closes.

A session that has ended is not reused; ``ZooKeeperClient.renew`` creates a new one.  Requests made in an old session
are never sent in a new one.
"""

from __future__ import annotations

import random
from enum import Enum
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IProtocol
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.runtime import Reactor
from kreplica.zookeeper.connection import Connection, Decode, OnResponse
from kreplica.zookeeper.digest_md5 import SaslCredentials
from kreplica.zookeeper.ensemble import PAUSE_S_MAX, Ensemble, Server, ServerOrder, connect
from kreplica.zookeeper.errors import (
    AuthFailed,
    ClientClosed,
    ConnectionLoss,
    OperationTimeout,
    PipelineFull,
    RequestTooLarge,
    SessionExpired,
    ZooKeeperError,
)
from kreplica.zookeeper.records import (
    XID_AUTH,
    XID_SET_WATCHES,
    ConnectRequest,
    ConnectResponse,
    Opcode,
    WatchEvent,
)
from kreplica.zookeeper.requests import Auth, opcode_of
from kreplica.zookeeper.responses import decode_empty
from kreplica.zookeeper.sasl import authenticate
from kreplica.zookeeper.session_options import SessionOptions
from kreplica.zookeeper.waiting_requests import WaitingRequest, WaitingRequests
from kreplica.zookeeper.watches import Watches, call_listener

_log = Logger()

# Timeout for the response to closeSession; the connection is closed with or without a response.
CLOSE_TIME_S_MAX = 5.0


class SessionState(Enum):
    """State of a session.

    * ``CONNECTING``: not yet established; requests wait.
    * ``CONNECTED``: requests are sent.
    * ``SUSPENDED``: the connection is lost and the client reconnects; the session may or may not have expired.
    * ``EXPIRED``: the server reported that the session has expired; final.
    * ``AUTH_FAILED``: the server rejected the credentials; final.
    * ``CLOSED``: closed by its owner; final.
    """

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"
    AUTH_FAILED = "auth failed"
    CLOSED = "closed"

    @property
    def ended(self) -> bool:
        """True in a final state."""
        return self in (SessionState.EXPIRED, SessionState.AUTH_FAILED, SessionState.CLOSED)

    @property
    def lost(self) -> bool:
        """True if the session ended without being closed by its owner: its ephemeral znodes are gone or will expire."""
        return self in (SessionState.EXPIRED, SessionState.AUTH_FAILED)


class SessionOwner(Protocol):
    """Callback of a session to its client."""

    def session_changed(self, session: Session, state: SessionState) -> None:
        """Called immediately, before any request completes or fails because of the change."""


class Session:
    """One session of a client; ``start`` starts connecting."""

    def __init__(
        self,
        reactor: Reactor,
        ensemble: Ensemble,
        randomness: random.Random,
        owner: SessionOwner,
        options: SessionOptions,
    ) -> None:
        self._reactor = reactor
        self._owner = owner
        self._options = options
        self._body_size_max = options.frame_size_max - 8
        self._requests_max = options.requests_max
        self._request_bytes_max = options.request_bytes_max
        self._random = randomness
        self._order = ServerOrder(ensemble, randomness)
        self._attempt_s_max = options.timeout_ms / 1000 / len(ensemble.servers)
        self.state = SessionState.CONNECTING
        self.id, self.password = options.resume or (0, b"\x00" * 16)
        self.timeout_ms = options.timeout_ms
        self.watches = Watches()
        self._last_zxid = 0
        self._confirmed_at = 0.0
        self._established: Deferred[None] | None = None
        self.problem = ""
        """Reason for the last failure to reach a server; empty while there is a connection."""
        self.server_accepted = False
        """True after a server has accepted a connection (and its TLS handshake), even if it opened no session."""
        self._server: Server | None = None  # of the current connection or attempt
        self._tls: Any = None  # TLS connection creator for that server
        self._attempt: Deferred[IProtocol] | None = None
        self._connection: Connection | None = None  # set once the socket is open
        self._usable: Connection | None = None  # the same connection, set once requests may be sent
        self._usable_since = 0.0
        self._identities_pending = 0
        self._timer: IDelayedCall | None = None  # backoff, or timeout of the current attempt
        waiting_ms_max = options.timeout_ms if options.waiting_ms_max is None else options.waiting_ms_max
        self._waiting = WaitingRequests(reactor, options.requests_max, options.request_bytes_max, waiting_ms_max / 1000)
        self._closed: list[Deferred[None]] = []

    @property
    def last_zxid(self) -> int:
        """Last transaction ID (zxid) that this session has seen; 0 before the first response."""
        return self._last_zxid if self._connection is None else self._connection.last_zxid

    @property
    def may_have_expired(self) -> bool:
        """True if the session may have expired: the server has not confirmed it for the session timeout."""
        confirmed_at = self._confirmed_at if self._usable is None else self._usable.confirmed_at
        return self.state.ended or self._reactor.seconds() - confirmed_at >= self.timeout_ms / 1000

    # Called by the client.

    def start(self, within_s: float) -> Deferred[None]:
        """Start connecting.

        :param within_s: timeout in seconds; after it the session is closed.
        :return: fires when the session is established.
        """
        established: Deferred[None] = Deferred()
        timeout = self._reactor.callLater(within_s, self._start_timed_out, within_s)

        def cancel_timeout(result: Any) -> Any:
            if timeout.active():
                timeout.cancel()
            return result

        self._established = established.addBoth(cancel_timeout)
        self._try_next()
        return established

    def submit(
        self, opcode: int, body: bytes, decode: Decode, path: str | None, on_response: OnResponse | None = None
    ) -> Deferred[Any]:
        """Send a request now, or once the session is connected.

        :param path: the caller's path, used in errors.
        """
        deferred: Deferred[Any] = Deferred()
        connection = self._usable
        if len(body) > self._body_size_max:
            deferred.errback(RequestTooLarge(len(body) + 8, self._options.frame_size_max, path))
        elif connection is None:
            if self.state.ended or self._closed:
                deferred.errback(self._failure_of_unsent(path))
            else:
                self._waiting.add(WaitingRequest(opcode, body, deferred, decode, path, on_response))
        elif (
            connection.unanswered_bytes > self._request_bytes_max or len(connection.unanswered) >= self._requests_max
        ):
            deferred.errback(PipelineFull(path))
        else:
            connection.send(opcode, body, deferred, decode, path, on_response)
        return deferred

    def close(self) -> Deferred[None]:
        """Close the session at the server, after the responses to earlier requests.

        A session without a connection is left to expire at the server.

        :return: fires when the connection is closed; never fails.
        """
        done: Deferred[None] = Deferred()
        first = not self._closed
        self._closed.append(done)
        if self._usable is not None:
            self._close_at_server(self._usable)
        elif first or self.state.ended:
            self._end(SessionState.CLOSED, ClientClosed())
        return done

    # Called by the connection.

    def handshake_done(self, connection: Connection, response: ConnectResponse) -> None:
        # A response with a different session ID means that the server does not have this session.
        if response.timeout_ms <= 0 or self.id not in (0, response.session_id):
            self._end(SessionState.EXPIRED, SessionExpired())
            return
        self.id, self.password, self.timeout_ms = response.session_id, response.password, response.timeout_ms
        self._confirmed_at = connection.confirmed_at
        connection.keep_alive(self.timeout_ms / 1000)
        auth, sasl = self._options.auth, self._options.sasl
        self._identities_pending = len(auth) + (sasl is not None)
        for scheme, credentials in auth:
            connection.send_reserved(XID_AUTH, Opcode.AUTH, Auth(scheme, credentials).encode())
        if sasl is not None:
            steps = Deferred.fromCoroutine(authenticate(connection, sasl, self._random))
            steps.addCallbacks(lambda _: self.auth_completed(connection, None), self._sasl_failed, errbackArgs=(sasl,))
            steps.addErrback(lambda failure: _log.failure("Authentication failed unexpectedly", failure))
        if not self._identities_pending:
            self._become_usable(connection)

    def auth_completed(self, connection: Connection, error: ZooKeeperError | None) -> None:
        if error is not None:
            schemes = ", ".join(scheme for scheme, _ in self._options.auth)
            self._end(SessionState.AUTH_FAILED, AuthFailed(None, f"{self._server} rejected the {schemes} credentials"))
            return
        self._identities_pending -= 1
        if not self._identities_pending and connection is self._connection:
            self._become_usable(connection)

    def watch_fired(self, event: WatchEvent) -> None:
        for listener in self.watches.listeners_of(event):
            call_listener(listener, event)

    def tls_established(self) -> None:
        self.server_accepted = True

    def connection_lost(self, connection: Connection, reason: str, *, tls_failed: bool = False) -> None:
        current = connection is self._connection
        if current:
            if tls_failed:
                self.server_accepted = False
                reason = f"TLS: {getattr(self._tls, 'certificate_error', None) or reason}"
            self.problem = f"{self._server}: {reason}"
            self._drop_connection()
            if self._closed:
                self._end(SessionState.CLOSED, ClientClosed())
            elif self.state is SessionState.CONNECTED:
                self._change(SessionState.SUSPENDED)
        # The session listeners are called before the requests fail.
        connection.fail_outstanding(lambda path: ConnectionLoss(path, f"{ConnectionLoss.meaning} ({reason})"))
        if current and not self.state.ended:
            self._try_next()

    # Connecting to a server.

    def _try_next(self) -> None:
        server, pause_s = self._order.next()
        self._timer = self._reactor.callLater(pause_s, self._try, server)

    def _try(self, server: Server) -> None:
        handshake = ConnectRequest(self._last_zxid, self._options.timeout_ms, self.id, self.password)
        size_max = self._options.response_size_max
        factory = Factory.forProtocol(lambda: Connection(self._reactor, self, handshake, size_max))
        self._timer = self._reactor.callLater(self._attempt_s_max, self._attempt_too_slow)
        create_tls = self._options.tls_context_factory
        self._server = server
        self._tls = tls = None if create_tls is None else create_tls(server.host)
        attempt = self._attempt = connect(self._reactor, server, factory, self._attempt_s_max, tls)
        attempt.addCallbacks(self._connected, self._attempt_failed, errbackArgs=(server,))

    def _connected(self, connection: IProtocol) -> None:
        assert isinstance(connection, Connection)
        self._attempt = None
        if self.state.ended:
            connection.abort("no longer needed")
        else:
            self._connection = connection
            if self._tls is None:
                self.server_accepted = True

    def _attempt_failed(self, failure: Failure, server: Server) -> None:
        self._attempt = None
        self._cancel_timer()
        if self.state.ended:
            return
        self.problem = f"{server}: {failure.getErrorMessage() or 'no response in time'}"
        self._try_next()

    def _attempt_too_slow(self) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
        elif self._connection is not None:
            self._connection.abort("the server did not open the session in time")

    def _start_timed_out(self, within_s: float) -> None:
        text = f"no session within {within_s:g} s; last attempt: {self.problem or 'no server was tried'}"
        self._end(SessionState.CLOSED, OperationTimeout(None, text))

    # Changing state.

    def _become_usable(self, connection: Connection) -> None:
        self._cancel_timer()
        self._usable_since = self._reactor.seconds()
        for request in self.watches.requests(self._last_zxid):
            connection.send_reserved(XID_SET_WATCHES, opcode_of(request), request.encode())
        self._usable = connection
        self.problem = ""
        for waiting in self._waiting.take_all():
            connection.send(*waiting)
        reconnect_events = self.watches.reconnect_events()
        self._change(SessionState.CONNECTED)
        established, self._established = self._established, None
        if established is not None:
            established.callback(None)
        for listener, event in reconnect_events:
            call_listener(listener, event)

    def _sasl_failed(self, failure: Failure, credentials: SaslCredentials) -> None:
        # Losing the connection does not mean that the credentials were rejected: the next connection retries.
        if not isinstance(failure.value, ConnectionLoss):
            text = f"{self._server}: SASL authentication of {credentials.username!r}: {failure.getErrorMessage()}"
            self._end(SessionState.AUTH_FAILED, AuthFailed(None, text))

    def _close_at_server(self, connection: Connection) -> None:
        self._usable = None
        answered: Deferred[None] = Deferred()
        connection.send(Opcode.CLOSE_SESSION, b"", answered, decode_empty, None, None)
        answered.addBoth(lambda _: connection.end("closed by its owner"))
        self._timer = self._reactor.callLater(
            CLOSE_TIME_S_MAX, connection.abort, "the server did not close the session in time"
        )

    def _end(self, state: SessionState, error: ZooKeeperError) -> None:
        """Change to a final state: first call the listeners, then fail all pending requests."""
        connection = self._connection
        if not self.state.ended:
            self._drop_connection()
            self._change(state)
            established, self._established = self._established, None
            if self._attempt is not None:
                self._attempt.cancel()
            if established is not None:
                established.errback(error)
            for waiting in self._waiting.take_all():
                waiting.deferred.errback(self._failure_of_unsent(waiting.path))
        if connection is not None:
            connection.abort(str(error))
            connection.fail_outstanding(self._failure_of_unsent)
        for done in self._closed:
            if not done.called:
                done.callback(None)

    def _change(self, state: SessionState) -> None:
        self.state = state
        self._owner.session_changed(self, state)

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._last_zxid = self._connection.last_zxid
        if self._usable is not None:
            self._confirmed_at = self._usable.confirmed_at
            # A server that accepts the session and then drops the connection immediately must not reset the backoff.
            if self._reactor.seconds() - self._usable_since >= PAUSE_S_MAX:
                self._order.reset_backoff()
        self._connection = self._usable = None
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _failure_of_unsent(self, path: str | None) -> ZooKeeperError:
        if self.state is SessionState.EXPIRED:
            return SessionExpired(path)
        return AuthFailed(path) if self.state is SessionState.AUTH_FAILED else ClientClosed(path)
