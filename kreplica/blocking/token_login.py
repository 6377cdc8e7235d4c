"""Obtains tokens for blocking clients with the standard library."""

from __future__ import annotations

import ssl

from kreplica.blocking.blocking_runtime import BlockingRuntime
from kreplica.blocking.http_exchange import BlockingExchange, HttpFailed
from kreplica.security.oauth.login import FILE_BYTES_MAX
from kreplica.security.oauth.login_options import LoginOptions
from kreplica.security.oauth.token_requests import HttpRequest, HttpResponse
from kreplica.security.sasl.credentials import CredentialsUnavailable


class BlockingLoginIo:
    """I/O functions of a login; they block instead of suspending.

    :param context: TLS settings for connections to the token endpoint; None if they are not encrypted.
    """

    def __init__(self, runtime: BlockingRuntime, options: LoginOptions, context: ssl.SSLContext | None) -> None:
        self._runtime = runtime
        self._http = BlockingExchange(context, options.connect_timeout_s + options.read_timeout_s)

    def now_ms(self) -> int:
        return self._runtime.wall_clock_ms()

    def seconds(self) -> float:
        return self._runtime.clock()

    def random(self) -> float:
        return self._runtime.random.random()

    async def pause(self, seconds: float) -> None:
        self._runtime.sleep(seconds)

    async def exchange(self, request: HttpRequest) -> HttpResponse:
        try:
            return self._http.send(request)
        except HttpFailed as error:
            raise CredentialsUnavailable(f"no token could be obtained: {error}") from error

    async def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX + 1)
