"""Interfaces of all SASL mechanisms; that of brokers belongs to the interface of plugins."""

from __future__ import annotations

from typing import Protocol

from kreplica.interfaces.authentication import AuthenticationError, ServerExchange

__all__ = ["AuthenticationError", "ClientExchange", "ServerExchange"]


class ClientExchange(Protocol):
    """One authentication of a client to a broker.

    :ivar is_complete: True if the broker has proved its identity, as far as the mechanism requires.
    """

    is_complete: bool

    def step(self, token: bytes) -> bytes:
        """Process a token of the broker, empty at first, and return the next one.

        :raise AuthenticationError: the broker does not know the password, or the token is malformed.
        """
