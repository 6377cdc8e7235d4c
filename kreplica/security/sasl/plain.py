"""The mechanism PLAIN (RFC 4616): the client sends its password, so the connection must be encrypted."""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest

from kreplica.errors import AuthenticationError

PLAIN = "PLAIN"


class PlainServer:
    """Authentication of one client.

    :param passwords: passwords by user.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.user: str | None = None
        self.expires_ms: int | None = None
        self.uses_token = False
        self._passwords = passwords

    def step(self, token: bytes) -> bytes:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise AuthenticationError(f"the PLAIN token has {len(parts)} parts instead of 3")
        try:
            authorization, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise AuthenticationError("the PLAIN token is not valid UTF-8") from None
        if not user or not password:
            raise AuthenticationError(f"the PLAIN token has no {'password' if user else 'user name'}")
        known = self._passwords.get(user)
        # Compared even for an unknown user, so that the time does not reveal which users exist.
        is_right = compare_digest((known or "").encode(), password.encode())
        if known is None or not is_right:
            raise AuthenticationError("invalid user name or password")
        if authorization not in ("", user):
            raise AuthenticationError("the client asks to act as another user")
        self.user = user
        return b""


class PlainClient:
    """Authentication of a client."""

    def __init__(self, user: str, password: str) -> None:
        self.is_complete = False
        self._token = f"\0{user}\0{password}".encode()

    def step(self, token: bytes) -> bytes:
        self.is_complete = True
        return self._token
