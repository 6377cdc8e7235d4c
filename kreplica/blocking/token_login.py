"""Tokens of blocking clients, requested with the standard library."""

from __future__ import annotations

import ssl
from http.client import HTTPException
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from kreplica.blocking.blocking_runtime import BlockingRuntime
from kreplica.security.oauth.login import FILE_BYTES_MAX
from kreplica.security.oauth.login_options import LoginOptions
from kreplica.security.oauth.token_requests import RESPONSE_BYTES_MAX, HttpRequest, HttpResponse
from kreplica.security.sasl.credentials import CredentialsUnavailable


class BlockingLoginIo:
    """The I/O of a login; nothing suspends.

    :param context: TLS of connections to the token endpoint; None if they are not encrypted.
    """

    def __init__(self, runtime: BlockingRuntime, options: LoginOptions, context: ssl.SSLContext | None) -> None:
        self._runtime = runtime
        self._timeout_s = options.connect_timeout_s + options.read_timeout_s
        self._opener = build_opener(_NoRedirects, *([] if context is None else [HTTPSHandler(context=context)]))

    def now_ms(self) -> int:
        return self._runtime.wall_clock_ms()

    def seconds(self) -> float:
        return self._runtime.clock()

    def random(self) -> float:
        return self._runtime.random.random()

    async def pause(self, seconds: float) -> None:
        self._runtime.sleep(seconds)

    async def exchange(self, request: HttpRequest) -> HttpResponse:
        message = Request(request.url, request.body, dict(request.headers), method=request.method)
        try:
            with self._opener.open(message, timeout=self._timeout_s) as response:
                return HttpResponse(response.status, _body(response, request))
        except HTTPError as error:
            with error:
                return HttpResponse(error.code, _body(error, request))
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise CredentialsUnavailable(f"no token could be obtained: {request.place}: {reason}") from error

    async def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX + 1)


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirects, since they would send the secret of the client to another server."""

    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: object, newurl: str) -> None:
        return None


def _body(response: IO[bytes] | HTTPError, request: HttpRequest) -> bytes:
    body: bytes = response.read(RESPONSE_BYTES_MAX + 1)
    if len(body) > RESPONSE_BYTES_MAX:
        raise CredentialsUnavailable(f"{request.place}: the response is larger than {RESPONSE_BYTES_MAX} bytes")
    return body
