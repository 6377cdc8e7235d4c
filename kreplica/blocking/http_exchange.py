"""HTTP requests with the standard library, bounded in size and time, without redirects."""

from __future__ import annotations

import ssl
from http.client import HTTPException
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from kreplica.errors import KreplicaError
from kreplica.security.oauth.token_requests import RESPONSE_BYTES_MAX, HttpRequest, HttpResponse


class HttpFailed(KreplicaError):
    """No response was received, or it is too large; the message contains the server and the reason."""


class BlockingExchange:
    """Sends HTTP requests.

    :param context: TLS settings; None selects the defaults of the standard library.
    :param timeout_s: timeout of each operation on the socket.
    """

    def __init__(self, context: ssl.SSLContext | None, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._opener = build_opener(_NoRedirects, *([] if context is None else [HTTPSHandler(context=context)]))

    def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request and return the response, regardless of its status.

        :raise HttpFailed: no response was received, or it is too large.
        """
        message = Request(request.url, request.body, dict(request.headers), method=request.method)
        try:
            with self._opener.open(message, timeout=self._timeout_s) as response:
                return HttpResponse(response.status, _body(response, request))
        except HTTPError as error:
            with error:
                return HttpResponse(error.code, _body(error, request))
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise HttpFailed(f"{request.place}: {reason}") from error


class _NoRedirects(HTTPRedirectHandler):
    """Does not follow redirects, which would send the client's secret to another server."""

    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: object, newurl: str) -> None:
        return None


def _body(response: IO[bytes] | HTTPError, request: HttpRequest) -> bytes:
    body: bytes = response.read(RESPONSE_BYTES_MAX + 1)
    if len(body) > RESPONSE_BYTES_MAX:
        raise HttpFailed(f"{request.place}: the response is larger than {RESPONSE_BYTES_MAX} bytes")
    return body
