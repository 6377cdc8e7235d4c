"""HTTP requests of the reactor to authorization servers: bounded in size and time, without redirects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.error import ConnectError
from zope.interface import implementer

from kreplica.errors import KreplicaError
from kreplica.security.oauth.token_requests import RESPONSE_BYTES_MAX, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from kreplica.runtime import Reactor
    from kreplica.security.tls.contexts import ClientTls


class HttpFailed(KreplicaError):
    """No response was received; the text names the server and the reason."""


async def exchange(
    reactor: Reactor, request: HttpRequest, tls: ClientTls | None, connect_timeout_s: float, timeout_s: float
) -> HttpResponse:
    """Send a request and return the response.

    :param tls: for ``https``.
    :param timeout_s: timeout of the whole exchange.
    :raise HttpFailed: no response was received, or it is too large.
    """
    sent = Deferred.fromCoroutine(_exchange(reactor, request, tls, connect_timeout_s))
    try:
        return await sent.addTimeout(timeout_s, reactor)  # type: ignore[arg-type]
    except TimeoutError:
        raise HttpFailed(f"{request.place}: no response within {timeout_s:g} s") from None


async def _exchange(
    reactor: Any, request: HttpRequest, tls: ClientTls | None, connect_timeout_s: float
) -> HttpResponse:
    # Imported here because the HTTP client loads TLS, which takes 13 MB.
    from treq import collect
    from twisted.web.client import Agent, FileBodyProducer, ResponseFailed
    from twisted.web.http_headers import Headers
    from twisted.web.iweb import IPolicyForHTTPS

    @implementer(IPolicyForHTTPS)
    class Policy:
        """Verifies servers with the settings of the client."""

        def creatorForNetloc(self, hostname: bytes, port: int) -> Any:
            assert tls is not None
            return tls.creator(hostname.decode("ascii"))

    policy = {} if tls is None else {"contextFactory": Policy()}
    agent = Agent(reactor, connectTimeout=connect_timeout_s, **policy)
    headers = Headers({name: [value] for name, value in request.headers.items()})
    body = None if request.body is None else FileBodyProducer(request.open_body())
    parts: list[bytes] = []

    def take(part: bytes) -> None:
        parts.append(part)
        if sum(map(len, parts)) > RESPONSE_BYTES_MAX:
            raise HttpFailed(f"{request.place}: the response is larger than {RESPONSE_BYTES_MAX} bytes")

    try:
        response = await agent.request(request.method.encode(), request.url.encode(), headers, body)
        await collect(response, take)
    except ResponseFailed as error:
        reasons = [failure.getErrorMessage() for failure in error.reasons]
        raise HttpFailed(f"{request.place}: {reasons[-1] if reasons else 'the connection was lost'}") from None
    except (ConnectError, OSError, ValueError) as error:
        raise HttpFailed(f"{request.place}: {error}") from None
    return HttpResponse(response.code, b"".join(parts))
