"""SASL mechanisms of listeners."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from zope.interface import Interface

from kreplica.errors import AuthenticationError

__all__ = ["AuthenticationError", "ISaslMechanism", "ServerExchange"]


class ServerExchange(Protocol):
    """One authentication of a client by a broker.

    :ivar user: the client's name once it is authenticated; None before.
    :ivar expires_ms: expiry of the client's credential, in milliseconds since 1970; None if it does not expire.
    """

    user: str | None
    expires_ms: int | None

    def step(self, token: bytes) -> bytes | Awaitable[bytes]:
        """Process a token from the client, and return the response, possibly later.

        The connection is not read until the response is available. If it closes, the awaitable is cancelled.

        :raise AuthenticationError: the client is not who it claims to be, or the token is malformed.
        """


class ISaslMechanism(Interface):
    """A SASL mechanism of listeners (``sasl.enabled.mechanisms``); the plugin has the name of the mechanism."""

    def new_exchange(listener: str) -> ServerExchange:
        """Begin the authentication of one client.

        :param listener: name of the listener that accepted the connection.
        """
