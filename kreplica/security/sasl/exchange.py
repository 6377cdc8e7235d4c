"""Client side of all SASL mechanisms; the server side is ``kreplica.interfaces.ServerExchange``."""

from __future__ import annotations

from typing import Protocol


class ClientExchange(Protocol):
    """One authentication of a client to a broker.

    :ivar is_complete: True if the broker has proved its identity, as far as the mechanism requires.
    """

    is_complete: bool

    def step(self, token: bytes) -> bytes:
        """Process a token from the broker, which is empty in the first step, and return the client's next token.

        :raise AuthenticationError: the broker did not prove that it knows the password, or the token is malformed.
        """
