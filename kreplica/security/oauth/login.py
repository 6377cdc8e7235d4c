"""A client's tokens: obtained when a connection needs one, replaced before they expire, shared by all connections."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Protocol

from kreplica.security.oauth.claims import decode_sections, required_time, time_claim
from kreplica.security.oauth.login_options import LoginOptions
from kreplica.security.oauth.token_requests import HttpRequest, HttpResponse, parse_token_response, token_request
from kreplica.security.sasl.bearer_token import InvalidToken
from kreplica.security.sasl.credentials import CredentialsUnavailable
from kreplica.security.sasl.exchange import ClientExchange
from kreplica.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerClient

RETRY_S = 10.0
"""Time after a failed replacement during which the previous token is used without another attempt, as in Kafka."""

FILE_BYTES_MAX = 1 << 20


class LoginIo(Protocol):
    """The clocks and the I/O of a client; a blocking client's coroutines never suspend."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970."""

    def seconds(self) -> float:
        """Return monotonic time."""

    def random(self) -> float:
        """Return a random number from 0 to 1."""

    def pause(self, seconds: float) -> Awaitable[None]:
        """Wait."""

    def exchange(self, request: HttpRequest) -> Awaitable[HttpResponse]:
        """Send a request and return the response.

        :raise CredentialsUnavailable: no response was received.
        """

    def read_file(self, path: str) -> Awaitable[bytes]:
        """Return the content of a file.

        :raise OSError: it cannot be read.
        """


@dataclass(frozen=True, slots=True)
class HeldToken:
    """A client's current token; its replacement and expiry times are in milliseconds since 1970."""

    text: str = field(repr=False)
    expires_ms: int
    refresh_ms: int


class TokenLogin:
    """Credentials of a client that authenticates with bearer tokens."""

    mechanism = OAUTHBEARER

    def __init__(self, options: LoginOptions, io: LoginIo) -> None:
        self._options = options
        self._io = io
        self._token: HeldToken | None = None
        self._retry_at_s: float | None = None

    @property
    def user(self) -> str:
        """Name of the client in error messages."""
        return self._options.user

    async def new_exchange(self) -> ClientExchange:
        """Begin an authentication with a valid token; obtain a new one if it is time to replace it.

        :raise CredentialsUnavailable: there is no valid token, and none could be obtained.
        """
        token = await self._current()
        return OAuthBearerClient(token.text, self._options.extensions)

    async def _current(self) -> HeldToken:
        token = self._token
        if token is not None and self._io.now_ms() < token.refresh_ms:
            return token
        is_too_early = self._retry_at_s is not None and self._io.seconds() < self._retry_at_s
        if token is not None and is_too_early and self._io.now_ms() < token.expires_ms:
            return token
        try:
            return await self._obtain()
        except CredentialsUnavailable:
            self._retry_at_s = self._io.seconds() + RETRY_S
            if token is None or self._io.now_ms() >= token.expires_ms:
                raise
            return token

    async def _obtain(self) -> HeldToken:
        """Obtain a token and keep it."""
        token = self._parse(await self._text())
        self._token, self._retry_at_s = token, None
        return token

    async def _text(self) -> str:
        options = self._options
        if options.unsecured is not None:
            return options.unsecured.new_token(self._io.now_ms())
        assert options.url is not None
        if options.url.path is not None:
            return await self._read(options.url.path)
        assert options.client is not None
        return await self._retry(token_request(options.url.url, options.client))

    async def _read(self, path: str) -> str:
        try:
            content = await self._io.read_file(path)
        except OSError as error:
            raise CredentialsUnavailable(f"the token file {path} cannot be read: {error.strerror}") from None
        if len(content) > FILE_BYTES_MAX or not content.isascii():
            raise CredentialsUnavailable(f"the token file {path} does not contain a token")
        return content.decode("ascii").strip()

    async def _retry(self, request: HttpRequest) -> str:
        """Request a token; retry with exponential backoff until ``retry_s_max`` has passed."""
        io, options = self._io, self._options
        end_s, delay_s = io.seconds() + options.retry_s_max, options.retry_s
        while True:
            try:
                return parse_token_response(request, await io.exchange(request))
            except CredentialsUnavailable as error:
                left_s = end_s - io.seconds()
                if not error.retriable or left_s <= 0 or delay_s <= 0:
                    raise
            await io.pause(min(delay_s, left_s))
            delay_s *= 2

    def _parse(self, text: str) -> HeldToken:
        place = "token" if self._options.url is None else f"token from {self._options.url.url}"
        try:
            _, claims, _ = decode_sections(text)
            issued_ms, expires_ms = time_claim(claims, "iat"), required_time(claims, "exp")
        except InvalidToken as error:
            raise CredentialsUnavailable(f"the {place} cannot be used: {error}", retriable=False) from None
        now_ms = self._io.now_ms()
        if now_ms >= expires_ms:
            raise CredentialsUnavailable(f"the {place} has expired")
        refresh_ms = self._options.refresh.time_ms(now_ms, issued_ms, expires_ms, self._io.random())
        return HeldToken(text, expires_ms, refresh_ms)
