"""Obtains tokens for Twisted clients without blocking the reactor; all waiting connections share one request."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.runtime.shared_coroutine import SharedCoroutine
from kreplica.security.oauth.http_exchange import HttpFailed, exchange
from kreplica.security.oauth.login import HeldToken, TokenLogin
from kreplica.security.oauth.login_options import LoginOptions
from kreplica.security.oauth.token_requests import HttpRequest, HttpResponse
from kreplica.security.sasl.credentials import CredentialsUnavailable

if TYPE_CHECKING:
    from kreplica.security.tls.contexts import ClientTls


class SharedTokenLogin(TokenLogin):
    """Credentials whose token is requested only once, even if several connections need it at the same time."""

    _obtaining: SharedCoroutine[HeldToken] | None = None

    async def _obtain(self) -> HeldToken:
        obtaining = self._obtaining
        if obtaining is None:
            obtaining = SharedCoroutine(self._obtain_once())
            if not obtaining.is_over:
                self._obtaining = obtaining
        return await obtaining.wait()

    async def _obtain_once(self) -> HeldToken:
        try:
            return await super()._obtain()
        finally:
            self._obtaining = None


class ReactorLoginIo:
    """I/O functions of a login, implemented with a reactor.

    :param tls: TLS settings for connections to the token endpoint; None if they are not encrypted.
    """

    def __init__(self, reactor: Reactor, options: LoginOptions, tls: ClientTls | None) -> None:
        self._reactor = reactor
        self._options = options
        self._tls = tls

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def seconds(self) -> float:
        return self._reactor.seconds()

    def random(self) -> float:
        return random.random()

    def pause(self, seconds: float) -> Deferred[None]:
        return pause(self._reactor, seconds)

    async def exchange(self, request: HttpRequest) -> HttpResponse:
        connect_s = self._options.connect_timeout_s
        timeout_s = connect_s + self._options.read_timeout_s
        try:
            return await exchange(self._reactor, request, self._tls, connect_s, timeout_s)
        except HttpFailed as error:
            raise CredentialsUnavailable(f"no token could be obtained: {error}") from error

    def read_file(self, path: str) -> Deferred[bytes]:
        return deferToThread(_read, path)


def token_endpoint_tls(options: LoginOptions) -> ClientTls | None:
    """Return the TLS settings for connections to the token endpoint; None if they are not encrypted.

    :raise SettingsError: a certificate cannot be read.
    """
    if options.url is None or not options.url.is_secure:
        return None
    # Imported here because it imports OpenSSL.
    from kreplica.security.tls.contexts import ClientTls

    return ClientTls(options.tls)


def token_login(reactor: Reactor, options: LoginOptions, tls: ClientTls | None) -> SharedTokenLogin:
    """Return the credentials of a client."""
    return SharedTokenLogin(options, ReactorLoginIo(reactor, options, tls))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
