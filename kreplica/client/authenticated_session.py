"""Authenticated session of a client's connection."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.client_core.authentication import RENEWAL_SHARE, authenticate
from kreplica.runtime import Reactor
from kreplica.security.sasl.credentials import SaslCredentials

log = Logger()


class SessionConnection(Protocol):
    """The connection that a session authenticates."""

    peer: str
    closed: bool

    @property
    def request(self) -> Any: ...

    def abort(self) -> None: ...


class AuthenticatedSession:
    """Authenticates a connection and re-authenticates it before the broker ends the session (KIP-368)."""

    def __init__(self, reactor: Reactor, connection: SessionConnection) -> None:
        self._reactor = reactor
        self._connection = connection
        self._renewal: IDelayedCall | None = None

    async def authenticate(self, credentials: SaslCredentials, timeout_s: float) -> None:
        """Authenticate; abort the connection if authentication fails.

        :param timeout_s: timeout for each response.
        :raise ClientError: the broker rejects the client, or does not respond.
        """
        connection = self._connection
        try:
            request = partial(connection.request, timeout_s=timeout_s)
            lifetime_ms = await authenticate(request, credentials, connection.peer)
        except BaseException:
            connection.abort()
            raise
        if lifetime_ms and not connection.closed:
            delay_s = lifetime_ms / 1000 * RENEWAL_SHARE
            self._renewal = self._reactor.callLater(delay_s, self._renew, credentials, timeout_s)

    def end(self) -> None:
        """Stop renewing the session, because the connection is closed."""
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None

    def _renew(self, credentials: SaslCredentials, timeout_s: float) -> None:
        self._renewal = None
        renewed = Deferred.fromCoroutine(self.authenticate(credentials, timeout_s))
        renewed.addErrback(lambda failure: log.warn("{reason}", reason=failure.getErrorMessage()))
