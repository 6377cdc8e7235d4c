"""TLS handshake of a client's connection."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionClosed
from twisted.python.failure import Failure

from kreplica.client_core.errors import ConnectionFailed
from kreplica.runtime import Reactor
from kreplica.security.tls.handshake_errors import tls_reason


class HandshakeConnection(Protocol):
    """The connection on which a handshake takes place."""

    peer: str

    def abort(self) -> None: ...


class TlsHandshake:
    """Waits for the end of a handshake, which the connection reports."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor: Any = reactor
        self._waiting: Deferred[None] | None = None
        self._result: ConnectionFailed | None = None
        self._is_over = False

    async def wait(self, connection: HandshakeConnection, endpoint: object, timeout_s: float) -> None:
        """Wait for the end of the handshake; abort the connection if the handshake fails.

        :param endpoint: its ``certificate_error``, if set, is the reason for a failure.
        :raise ConnectionFailed: the handshake failed, or took longer than the timeout.
        """
        timed_out = ConnectionFailed(f"not completed within {timeout_s:g} s")
        timeout = self._reactor.callLater(timeout_s, self._end, timed_out)
        try:
            if not self._is_over:
                self._waiting = Deferred()
                await self._waiting
            if self._result is not None:
                raise self._result
        except CancelledError:
            connection.abort()
            raise
        except ConnectionFailed as error:
            connection.abort()
            reason = getattr(endpoint, "certificate_error", None) or str(error)
            raise ConnectionFailed(f"{connection.peer}: the TLS handshake failed: {reason}") from error
        finally:
            if timeout.active():
                timeout.cancel()

    def completed(self) -> None:
        """Report that the handshake has completed."""
        self._end(None)

    def failed(self, reason: Failure) -> None:
        """Report that the connection was lost."""
        closed = reason.check(ConnectionClosed) is not None
        self._end(ConnectionFailed("the server closed the connection" if closed else tls_reason(reason.value)))

    def _end(self, result: ConnectionFailed | None) -> None:
        if not self._is_over:
            self._is_over, self._result = True, result
            waiting, self._waiting = self._waiting, None
            if waiting is not None and not waiting.called:
                waiting.callback(None)
