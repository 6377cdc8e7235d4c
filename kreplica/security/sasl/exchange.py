"""Interfaces of all SASL mechanisms."""

from __future__ import annotations

from typing import Protocol

from kreplica.errors import KreplicaError


class AuthenticationError(KreplicaError):
    """The other side could not be authenticated; the text contains no secret."""


class ServerExchange(Protocol):
    """One authentication of a client by a broker.

    :ivar user: the client's name once it is authenticated; None before.
    """

    user: str | None

    def step(self, token: bytes) -> bytes:
        """Process a token of the client, and return the response.

        :raise AuthenticationError: the client is not who it claims to be, or the token is malformed.
        """


class ClientExchange(Protocol):
    """One authentication of a client to a broker.

    :ivar is_complete: True if the broker has proved what the mechanism requires.
    """

    is_complete: bool

    def step(self, token: bytes) -> bytes:
        """Process a token of the broker, empty at first, and return the next one.

        :raise AuthenticationError: the broker does not know the password, or the token is malformed.
        """
