"""Authentication of one connection with SASL: handshake, tokens, and the end of the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import ErrorCode
from kreplica.interfaces import AuthenticationError
from kreplica.runtime import Reactor
from kreplica.server.authentication.sasl_config import BrokerExchange, SaslConfig
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.request import Handler, Request
from kreplica.wire.framing import frame as framed
from kreplica.wire.messages import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

log = Logger()

Respond = Callable[[bytes], object]
Fail = Callable[[AuthenticationError], object]

_AFTER_EXPIRY = frozenset({API_VERSIONS.key, SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key})
"""APIs that an expired session may still use."""

_REAUTHENTICATION_FROM = 1
"""First version of SaslAuthenticate whose response contains the session lifetime (KIP-368)."""


class SessionListener(Protocol):
    """The listener of a session (``sasl_listener.SaslListener``)."""

    config: SaslConfig
    reactor: Reactor
    frame_received: Callable[[Connection, memoryview], object]
    frame_bytes_max: int
    failures: int

    @property
    def handshake(self) -> HandshakeDispatch: ...


class HandshakeDispatch(Protocol):
    """Dispatches the requests of connections that are not authenticated yet."""

    def frame_received(self, connection: Connection, frame: memoryview) -> None: ...


class SaslSession:
    """Authentication state of one connection.

    Until the client is authenticated, its connection serves only ApiVersions, SaslHandshake and SaslAuthenticate.

    :ivar uses_token: True if the client has authenticated with a delegation token.
    """

    __slots__ = (
        "_connection",
        "_exchange",
        "_expires_s",
        "_has_versions",
        "_lifetime_s",
        "_listener",
        "_mechanism",
        "_timer",
        "_user",
        "_validation",
        "uses_token",
    )

    def __init__(self, listener: SessionListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._exchange: BrokerExchange | None = None
        self._has_versions = False
        self._mechanism = ""
        self._user: str | None = None
        self._expires_s = 0.0
        self._lifetime_s: float | None = None
        self.uses_token = False
        self._timer: IDelayedCall | None = None
        self._validation: Deferred[None] | None = None
        connection.frame_received = listener.handshake.frame_received
        connection.frame_bytes_max = listener.config.receive_bytes_max
        connection.on_close(self._closed)
        self._start_timer(listener.config.timeout_s, self._timed_out)

    @property
    def may_reauthenticate(self) -> bool:
        """True if the client has not completed its first authentication, or its session has a limited lifetime."""
        return self._user is None or self._lifetime_s is not None

    def begin(self, request: Request) -> None:
        """Handle SaslHandshake: choose the mechanism."""
        if self._exchange is not None:
            self._reject(request, {"mechanisms": []}, "SaslHandshake was received instead of a token")
            return
        mechanism = request.body["mechanism"]
        mechanisms = self._listener.config.mechanisms
        new_exchange = mechanisms.get(mechanism)
        code = ErrorCode.NONE
        if new_exchange is None:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        elif self._user is not None and mechanism != self._mechanism:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
        request.respond({"error_code": int(code), "mechanisms": sorted(mechanisms)})
        if new_exchange is None or code is not ErrorCode.NONE:
            self._log(f"the mechanism {mechanism!r} is not enabled or has changed")
            self._connection.stop()
            return
        self._mechanism = mechanism
        self._exchange = new_exchange()
        if request.version == 0:
            # The tokens follow as frames without a header.
            self._connection.frame_received = self._raw_token_received

    def versions(self, request: Request, handle: Handler) -> None:
        """Handle ApiVersions, which is allowed once, before SaslHandshake, as in Kafka."""
        if self._exchange is not None:
            self._reject(request, {"api_keys": []}, "ApiVersions was received instead of a token")
            return
        if self._has_versions:
            self._listener.failures += 1
            request.abort("ApiVersions was received twice before SaslHandshake")
            return

        def note(response: dict[str, Any]) -> dict[str, Any]:
            self._has_versions = response["error_code"] == 0
            return response

        request.amend_response(note)
        handle(request)

    def authenticate(self, request: Request) -> None:
        """Handle SaslAuthenticate: process a token of the mechanism."""
        if self._exchange is None:
            self._listener.failures += 1
            if self._user is not None:
                body = {"error_message": "SaslAuthenticate was received without SaslHandshake.", "auth_bytes": b""}
                request.respond({"error_code": int(ErrorCode.ILLEGAL_SASL_STATE), **body})
                return
            request.abort("SaslAuthenticate was received without SaslHandshake")
            return
        self._process(bytes(request.body["auth_bytes"]), partial(self._respond, request), partial(self._fail, request))

    def _respond(self, request: Request, token: bytes) -> None:
        is_complete = self._exchange is None and request.version >= _REAUTHENTICATION_FROM
        request.respond(
            {
                "error_code": 0,
                "error_message": None,
                "auth_bytes": token,
                "session_lifetime_ms": int((self._lifetime_s or 0.0) * 1000) if is_complete else 0,
            }
        )

    def _reject(self, request: Request, response: dict[str, Any], reason: str) -> None:
        self._exchange = None
        request.respond({"error_code": int(ErrorCode.ILLEGAL_SASL_STATE), **response})
        self._log(reason)
        self._connection.stop()

    def _process(self, token: bytes, respond: Respond, fail: Fail) -> None:
        """Process a token of the mechanism; pass the response or the error to a function, possibly later."""
        exchange = self._exchange
        assert exchange is not None
        try:
            outcome = exchange.step(token)
        except AuthenticationError as error:
            fail(error)
            return
        if isinstance(outcome, bytes):
            self._advance(exchange, outcome, respond, fail)
            return
        validation = Deferred.fromCoroutine(self._wait(exchange, outcome, respond, fail))
        if not validation.called:
            self._validation = validation
            self._connection.suspend()
            validation.addBoth(self._validated)
        validation.addErrback(self._validation_failed, fail)

    async def _wait(
        self, exchange: BrokerExchange, outcome: Awaitable[bytes], respond: Respond, fail: Fail
    ) -> None:
        try:
            response = await outcome
        except AuthenticationError as error:
            fail(error)
        else:
            self._advance(exchange, response, respond, fail)

    def _validated(self, result: Failure | None) -> Failure | None:
        self._validation = None
        self._connection.resume()
        return result

    def _validation_failed(self, failure: Failure, fail: Fail) -> None:
        """Handle an unexpected error of the mechanism; a cancelled validation belongs to a closed connection."""
        if failure.check(CancelledError) is None:
            log.failure("the SASL mechanism {mechanism} failed", failure, mechanism=self._mechanism)
            fail(AuthenticationError("internal error of the broker"))

    def _advance(self, exchange: BrokerExchange, response: bytes, respond: Respond, fail: Fail) -> None:
        user = exchange.user
        if user is not None and self._user not in (None, user):
            fail(AuthenticationError("a session cannot be re-authenticated as another user"))
            return
        if user is not None:
            self.uses_token = exchange.uses_token
            self._complete(user, exchange.expires_ms)
        respond(response)

    def _complete(self, user: str, expires_ms: int | None) -> None:
        self._exchange = None
        self._user = user
        self._lifetime_s = self._listener.config.session_s(expires_ms)
        connection, listener = self._connection, self._listener
        connection.user = f"User:{user}"
        connection.frame_received = listener.frame_received
        connection.frame_bytes_max = listener.frame_bytes_max
        self._cancel_timer()
        if self._lifetime_s is not None:
            self._expires_s = listener.reactor.seconds() + self._lifetime_s
            connection.frame_received = self._received_in_session

    def _raw_token_received(self, connection: Connection, frame: memoryview) -> None:
        self._process(bytes(frame), lambda response: connection.send_at_once(framed(response)), self._fail_raw)

    def _fail_raw(self, error: AuthenticationError) -> None:
        """Close the connection after a delay; a token without a request header cannot be answered with an error."""
        self._log(error.logged)
        self._connection.suspend()
        self._start_timer(self._listener.config.failure_delay_s, self._connection.stop)

    def _fail(self, request: Request, error: AuthenticationError) -> None:
        """Report the failure and close, after a delay that slows down password guessing."""
        self._log(error.logged)
        self._exchange = None
        self._connection.suspend()
        self._start_timer(self._listener.config.failure_delay_s, self._respond_with_failure, request, str(error))

    def _respond_with_failure(self, request: Request, reason: str) -> None:
        self._timer = None
        request.respond(
            {
                "error_code": int(ErrorCode.SASL_AUTHENTICATION_FAILED),
                "error_message": f"Authentication failed: {reason}",
                "auth_bytes": b"",
            }
        )
        self._connection.stop()

    def _log(self, reason: str) -> None:
        self._listener.failures += 1
        peer, listener = self._connection.peer, self._connection.listener
        log.info("authentication of {peer} on {listener} failed: {reason}", peer=peer, listener=listener, reason=reason)

    # --- timers ------------------------------------------------------------------------------------------------------

    def _start_timer(self, delay_s: float, function: Callable[..., object], *arguments: Any) -> None:
        self._cancel_timer()
        self._timer = self._listener.reactor.callLater(delay_s, function, *arguments)

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    def _closed(self) -> None:
        self._cancel_timer()
        if self._validation is not None:
            self._validation.cancel()

    def _timed_out(self) -> None:
        self._timer = None
        self._connection.drop(f"not authenticated within {self._listener.config.timeout_s:g} s")

    # --- end of the session ------------------------------------------------------------------------------------------

    def _received_in_session(self, connection: Connection, frame: memoryview) -> None:
        """Close the connection if the client sends another request after the session has expired.

        The expiry time is checked on each request, because after a pause of the process a timer would fire only after
        the requests that arrived in the meantime had been handled.
        """
        listener = self._listener
        if listener.reactor.seconds() < self._expires_s or int.from_bytes(frame[:2], "big") in _AFTER_EXPIRY:
            listener.frame_received(connection, frame)
        else:
            connection.abort("the session expired before the client re-authenticated")


def session_of(connection: Connection) -> SaslSession | None:
    """Return the SASL session of a connection; None if its listener does not use SASL."""
    sasl = connection.sasl
    return sasl if isinstance(sasl, SaslSession) else None
