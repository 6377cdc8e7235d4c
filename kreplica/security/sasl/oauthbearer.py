"""The mechanism OAUTHBEARER (RFC 7628, KIP-255): the client sends a token, so the connection must be encrypted."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Mapping

from kreplica.errors import AuthenticationError
from kreplica.security.sasl.bearer_token import InvalidToken, TokenValidator

OAUTHBEARER = "OAUTHBEARER"

_SEPARATOR = "\x01"
_HEADER = re.compile(r"n,(?:a=((?:[^=,\x00\x80-\U0010ffff]|=2C|=3D)+))?,", re.DOTALL)
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_AUTHORIZATION = re.compile(r"([A-Za-z0-9_]+) +([-_~+/.a-zA-Z0-9]+=*)")
_MESSAGE_BYTES_MAX = 64 * 1024
_AUTH = "auth"


class OAuthBearerServer:
    """Authentication of one client.

    :param validator: validates the client's token.
    """

    def __init__(self, validator: TokenValidator) -> None:
        self.user: str | None = None
        self.expires_ms: int | None = None
        self.uses_token = False
        self._validator = validator
        self._rejection: AuthenticationError | None = None

    def step(self, token: bytes) -> bytes | Awaitable[bytes]:
        if self._rejection is not None:
            # The client has acknowledged the error: with 0x01, as the RFC requires, or with anything else.
            raise self._rejection
        authorization_id, bearer_token, _ = parse_first_message(token)
        return self._validate(authorization_id, bearer_token)

    async def _validate(self, authorization_id: str, token: str) -> bytes:
        try:
            found = await self._validator.validate(token)
        except InvalidToken as error:
            return self._reject(str(error), error.missing_scope)
        if authorization_id not in ("", found.user):
            raise AuthenticationError("the client asks to act as another user")
        self.user, self.expires_ms = found.user, found.expires_ms
        return b""

    def _reject(self, reason: str, missing_scope: str | None) -> bytes:
        """Return the error as the RFC requires; the exchange fails when the client has acknowledged it."""
        response = {"status": "invalid_token"}
        if missing_scope is not None:
            response = {"status": "insufficient_scope", "scope": missing_scope}
        text = json.dumps(response)
        self._rejection = AuthenticationError(text, logged=reason)
        return text.encode()


class OAuthBearerClient:
    """Authentication of a client.

    :param extensions: SASL extensions by name.
    """

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self.is_complete = False
        self._message = build_first_message(token, extensions)
        self._has_started = False

    def step(self, token: bytes) -> bytes:
        if not self._has_started:
            self._has_started = True
            return self._message
        if token:
            # The client acknowledges the error; the broker then rejects the authentication.
            return _SEPARATOR.encode()
        self.is_complete = True
        return b""


def build_first_message(token: str, extensions: Mapping[str, str]) -> bytes:
    """Return the first message of a client."""
    pairs = [f"{_AUTH}=Bearer {token}", *(f"{name}={value}" for name, value in extensions.items())]
    return f"n,,{_SEPARATOR}{_SEPARATOR.join(pairs)}{_SEPARATOR}{_SEPARATOR}".encode()


def parse_first_message(message: bytes) -> tuple[str, str, dict[str, str]]:
    """Return the authorization ID, the token and the extensions in the first message of a client.

    :raise AuthenticationError: the message is malformed; no part of it appears in the error.
    """
    if len(message) > _MESSAGE_BYTES_MAX:
        raise AuthenticationError(f"an OAUTHBEARER message of {len(message)} bytes is too long")
    try:
        header, *pairs = message.decode("ascii").split(_SEPARATOR)
    except UnicodeDecodeError:
        raise AuthenticationError("the OAUTHBEARER message is not ASCII") from None
    match = _HEADER.fullmatch(header)
    if match is None or pairs[-2:] != ["", ""]:
        raise AuthenticationError("the OAUTHBEARER message is malformed")
    extensions = dict(_pair(pair) for pair in pairs[:-2])
    authorization = _AUTHORIZATION.fullmatch(extensions.pop(_AUTH, ""))
    if authorization is None or authorization[1].lower() != "bearer":
        raise AuthenticationError("the OAUTHBEARER message contains no bearer token")
    authorization_id = (match[1] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, authorization[2], extensions


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Check the extensions of a client.

    :raise ValueError: a name or value contains forbidden characters, or a name is reserved; the message contains no
        value.
    """
    for name, value in extensions.items():
        if name == _AUTH or _KEY.fullmatch(name) is None:
            raise ValueError(f"the extension name {name!r} is not allowed: it must consist of letters, and not be auth")
        if _VALUE.fullmatch(value) is None:
            raise ValueError(f"the value of the extension {name} is empty or contains forbidden characters")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or _KEY.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
        raise AuthenticationError("an extension in the OAUTHBEARER message is malformed")
    return name, value
