"""HTTP requests to authorization servers through the reactor: bounded in size and time, without redirects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from zope.interface import implementer

from kreplica.errors import KreplicaError
from kreplica.security.oauth.token_requests import RESPONSE_BYTES_MAX, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from kreplica.runtime import Reactor
    from kreplica.security.tls.contexts import ClientTls, HostVerification


class HttpFailed(KreplicaError):
    """No response was received, or it is too large; the message names the server and the reason."""


async def exchange(
    reactor: Reactor, request: HttpRequest, tls: ClientTls | None, connect_timeout_s: float, timeout_s: float
) -> HttpResponse:
    """Send a request and return the response.

    :param tls: options for ``https`` URLs.
    :param timeout_s: timeout of the whole exchange.
    :raise HttpFailed: no response was received, or it is too large.
    """
    verifications: list[HostVerification] = []
    sent = Deferred.fromCoroutine(_exchange(reactor, request, tls, connect_timeout_s, verifications))
    try:
        return await sent.addTimeout(timeout_s, reactor)  # type: ignore[arg-type]
    except (CancelledError, HttpFailed):
        raise
    except TimeoutError:
        raise HttpFailed(f"{request.place}: no response within {timeout_s:g} s") from None
    except Exception as error:  # the HTTP client raises many types of errors, which have no common base
        rejected = [each.certificate_error for each in verifications if each.certificate_error is not None]
        raise HttpFailed(f"{request.place}: {rejected[0] if rejected else _reason(error)}") from None


async def _exchange(
    reactor: Any,
    request: HttpRequest,
    tls: ClientTls | None,
    connect_timeout_s: float,
    verifications: list[HostVerification],
) -> HttpResponse:
    # Imported here because the HTTP client loads TLS, which takes 13 MB.
    from treq import collect
    from twisted.web.client import Agent, FileBodyProducer
    from twisted.web.http_headers import Headers
    from twisted.web.iweb import IPolicyForHTTPS

    @implementer(IPolicyForHTTPS)
    class Policy:
        """Verifies servers with the settings of the client."""

        def creatorForNetloc(self, hostname: bytes, port: int) -> HostVerification:
            assert tls is not None
            verifications.append(tls.creator(hostname.decode("ascii")))
            return verifications[-1]

    policy = {} if tls is None else {"contextFactory": Policy()}
    agent = Agent(reactor, connectTimeout=connect_timeout_s, **policy)
    headers = Headers({name: [value] for name, value in request.headers.items()})
    body = None if request.body is None else FileBodyProducer(request.open_body())
    content = bytearray()

    def take(part: bytes) -> None:
        content.extend(part)
        if len(content) > RESPONSE_BYTES_MAX:
            raise HttpFailed(f"{request.place}: the response is larger than {RESPONSE_BYTES_MAX} bytes")

    response = await agent.request(request.method.encode(), request.url.encode(), headers, body)
    await collect(response, take)
    return HttpResponse(response.code, bytes(content))


def _reason(error: Exception) -> str:
    """Return the reason why a request failed; the HTTP client wraps it in a list of failures."""
    failures = getattr(error, "reasons", None)
    if failures:
        return str(failures[-1].getErrorMessage())
    return str(error) or type(error).__name__
