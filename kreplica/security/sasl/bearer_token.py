"""A validated bearer token, and the interface of validators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kreplica.errors import KreplicaError

TOKEN_CHARACTERS_MAX = 32 * 1024
"""Maximum length of a token, so that its validation takes at most two milliseconds."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """Content of a valid token; the token itself is not kept.

    :param user: name of the user.
    :param expires_ms: time at which the token expires, in milliseconds since 1970.
    """

    user: str
    expires_ms: int


class InvalidToken(KreplicaError):
    """The token is malformed, expired, or not issued for this broker; the message contains no part of the token.

    :param missing_scope: the required scope, if the token is valid but does not have it.
    """

    def __init__(self, message: str, missing_scope: str | None = None) -> None:
        super().__init__(message)
        self.missing_scope = missing_scope


class TokenValidator(Protocol):
    """Validates bearer tokens."""

    async def validate(self, token: str) -> BearerToken:
        """Return the content of a token.

        :raise InvalidToken: the token is not valid.
        """
