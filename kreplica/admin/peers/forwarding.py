"""Forwards requests to other brokers' admin APIs on behalf of a caller.

A forwarded request has a header that prevents it from being forwarded again, so there are no loops. If there is a
token, brokers authenticate to each other with it and name the caller, whose permissions apply; the caller's own
credentials are not forwarded.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlencode

from twisted.internet.defer import CancelledError, Deferred, DeferredList, succeed
from twisted.internet.interfaces import IConsumer
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers
from twisted.web.iweb import IBodyProducer, IPolicyForHTTPS
from zope.interface import implementer

from kreplica.admin.http.api import Call
from kreplica.admin.http.problems import Problem
from kreplica.admin.peers.addresses import peer_url
from kreplica.admin.peers.registrations import Registrations
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.errors import KreplicaError
from kreplica.runtime import Reactor
from kreplica.runtime.offload import Offload

if TYPE_CHECKING:
    from twisted.web.client import Agent, HTTPConnectionPool

FORWARDED = "X-Kreplica-Forwarded"
PRINCIPAL, PRINCIPAL_HOST = "X-Kreplica-Principal", "X-Kreplica-Principal-Host"
"""Headers with the caller's user and address, percent-encoded; absent for a super user."""

RESPONSE_SECONDS_MAX = 5.0
"""Timeout of each request, so that a paused or isolated broker does not delay the combined response."""

RESPONSE_BYTES_MAX = 32 * 1024 * 1024

SMALL_RESPONSE_BYTES = 16 * 1024
"""Responses up to this size are validated in the reactor thread; larger ones in a worker thread."""

IN_FLIGHT_MAX = 100
"""Maximum number of requests in flight."""

CONNECTIONS_MAX = 4
"""Maximum number of idle connections per broker."""

MISDIRECTED_REQUEST = 421

NO_ADMIN_LISTENER = "no admin listener"
"""Title of the problem of a broker without an admin API, which is not a fault."""

ReadLocal = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class PeerResponses:
    """The responses of several brokers.

    :param documents: by broker ID, in order, including this broker.
    :param problems: a sentence for each broker that did not respond.
    """

    documents: Mapping[int, Any]
    problems: Sequence[str]


class OtherBrokers(Protocol):
    """Interface for resources that need other brokers (``Forwarding``, or a test double)."""

    async def request(
        self,
        broker_id: int,
        call: Call,
        path: str,
        validator: PeerResponseValidator,
        *,
        query: Mapping[str, Any] | None = None,
        method: str = "GET",
        body: Any = None,
    ) -> Any: ...

    async def request_all(
        self,
        call: Call,
        path: str,
        validator: PeerResponseValidator,
        read_local: ReadLocal,
        *,
        query: Mapping[str, Any] | None = None,
        each: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> PeerResponses: ...


class ResponseTooLarge(KreplicaError):
    """The response exceeds the size limit."""


@implementer(IBodyProducer)
class _Body:
    """A request body in memory; Twisted's ``FileBodyProducer`` would use the global reactor."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.length = len(content)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._content)
        return succeed(None)

    def pauseProducing(self) -> None: ...

    def resumeProducing(self) -> None: ...

    def stopProducing(self) -> None: ...


class Forwarding:
    """Sends requests to the admin APIs of other brokers.

    Owned and closed by the admin API of a broker.

    :param offload: parses large responses.
    :param registrations: the live brokers and their admin URLs.
    :param trust_policy: the TLS trust policy for other brokers; None for the system's certificates.
    :param token: the token that all brokers share; None if callers need not authenticate.
    """

    def __init__(
        self,
        reactor: Reactor,
        offload: Offload,
        broker_id: int,
        registrations: Registrations,
        *,
        trust_policy: IPolicyForHTTPS | None = None,
        token: bytes | None = None,
        timeout_s: float = RESPONSE_SECONDS_MAX,
    ) -> None:
        self._reactor: Any = reactor
        self._offload = offload
        self._broker_id = broker_id
        self._registrations = registrations
        self._timeout_s = timeout_s
        self._trust_policy = trust_policy
        self._token = token
        self._pool: HTTPConnectionPool | None = None
        self._in_flight: dict[Deferred[Any], None] = {}
        self._closed = False

    async def close(self) -> None:
        """Cancel requests in flight, refuse new ones and close the connections."""
        self._closed = True
        for waiting in list(self._in_flight):
            waiting.cancel()
        if self._pool is not None:
            await self._pool.closeCachedConnections()

    # --- one broker --------------------------------------------------------------------------------------------------

    async def request(
        self,
        broker_id: int,
        call: Call,
        path: str,
        validator: PeerResponseValidator,
        *,
        query: Mapping[str, Any] | None = None,
        method: str = "GET",
        body: Any = None,
    ) -> Any:
        """Send a request to another broker.

        :param call: the caller's request.
        :param path: the percent-encoded path, without a query.
        :param validator: checks and reads the response.
        :param query: parameters; None values are omitted.
        :param body: converted to JSON; None for no body.
        :return: the response document; None without a body.
        :raise Problem: the other broker's problem; 421 for a request that was already forwarded; 503 if the broker is
            not alive, has no admin listener, or too many requests are in flight; 502 if it is unreachable, its URL is
            not trusted (``peer_url``) or its response is invalid; 504 after a timeout.
        """
        if call.forwarded:
            raise Problem(
                MISDIRECTED_REQUEST,
                "misdirected",
                f"broker {self._broker_id} received a forwarded request that broker {broker_id} must handle",
                what_to_do="Retry: the controller or coordinator has changed.",
            )
        has_secret = self._token is not None or call.authorization is not None
        url = await self._url_of(broker_id, with_token=has_secret)
        if self._closed or len(self._in_flight) >= IN_FLIGHT_MAX:
            why = "is stopping" if self._closed else f"has {len(self._in_flight)} requests to other brokers in flight"
            raise Problem(503, "busy", f"broker {self._broker_id} {why}", what_to_do="Retry in a moment.")
        parameters = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        suffix = f"?{urlencode(parameters)}" if parameters else ""
        status, text = await self._exchange_in_time(broker_id, method, f"{url.rstrip('/')}{path}{suffix}", call, body)
        if len(text) <= SMALL_RESPONSE_BYTES:
            return validator.read(broker_id, status, text)
        return await self._offload.run(validator.read, broker_id, status, text)

    async def _url_of(self, broker_id: int, *, with_token: bool) -> str:
        registration = (await self._registrations.live()).get(broker_id)
        if registration is None:
            raise Problem(
                503,
                "BROKER_NOT_AVAILABLE",
                f"broker {broker_id} is not registered in ZooKeeper",
                what_to_do="Start the broker, or wait until another broker replaces it.",
            )
        if registration.admin_url is None:
            raise Problem(
                503,
                NO_ADMIN_LISTENER,
                f"broker {broker_id} has no admin listener",
                what_to_do="Set kreplica.admin.listener on each broker.",
            )
        return peer_url(registration, registration.admin_url, with_token=with_token)

    async def _exchange_in_time(
        self, broker_id: int, method: str, url: str, call: Call, body: Any
    ) -> tuple[int, bytes]:
        exchange = Deferred.fromCoroutine(self._exchange(method, url, call, body))
        self._in_flight[exchange] = None
        expired = []

        def expire() -> None:
            expired.append(True)
            exchange.cancel()

        timer = self._reactor.callLater(self._timeout_s, expire)
        try:
            return await exchange
        except Exception as error:  # Twisted raises errors of many types for a lost connection
            if expired:
                text = f"broker {broker_id} did not respond within {self._timeout_s:g} s"
                raise Problem(
                    504, "no response in time", text, what_to_do="Check whether it hangs or is unreachable."
                ) from None
            if self._closed:
                raise Problem(503, "stopping", f"broker {self._broker_id} is stopping") from None
            if isinstance(error, CancelledError):
                raise
            text = f"cannot send a request to broker {broker_id} at {url.partition('?')[0]}: {_reason(error)}"
            raise Problem(502, "no response", text, what_to_do="Check whether it is running and reachable.") from None
        finally:
            self._in_flight.pop(exchange, None)
            if timer.active():
                timer.cancel()

    @cached_property
    def _agent(self) -> Agent:
        """HTTP agent; created for the first request, because importing it loads TLS (13 MB)."""
        from twisted.web.client import Agent, HTTPConnectionPool

        self._pool = HTTPConnectionPool(self._reactor)
        self._pool.maxPersistentPerHost = CONNECTIONS_MAX
        policy = {} if self._trust_policy is None else {"contextFactory": self._trust_policy}
        return Agent(self._reactor, connectTimeout=self._timeout_s, pool=self._pool, **policy)

    async def _exchange(self, method: str, url: str, call: Call, body: Any) -> tuple[int, bytes]:
        headers = Headers({b"Accept": [b"application/json"], FORWARDED.encode(): [b"1"]})
        self._add_credentials(headers, call)
        producer = None
        if body is not None:
            headers.addRawHeader(b"Content-Type", b"application/json")
            producer = _Body(json.dumps(body).encode())
        from treq import collect

        response = await self._agent.request(method.encode(), url.encode(), headers, producer)
        parts: list[bytes] = []
        size = 0

        def take(part: bytes) -> None:
            nonlocal size
            size += len(part)
            if size > RESPONSE_BYTES_MAX:
                raise ResponseTooLarge(f"the response is larger than {RESPONSE_BYTES_MAX} bytes")
            parts.append(part)

        await collect(response, take)
        return response.code, b"".join(parts)

    def _add_credentials(self, headers: Headers, call: Call) -> None:
        if self._token is None:
            if call.authorization is not None:
                headers.addRawHeader(b"Authorization", call.authorization.encode())
            return
        headers.addRawHeader(b"Authorization", b"Bearer " + self._token)
        if not call.caller.is_super:
            headers.addRawHeader(PRINCIPAL.encode(), quote(call.caller.user).encode())
            headers.addRawHeader(PRINCIPAL_HOST.encode(), quote(call.caller.host).encode())

    # --- all brokers -------------------------------------------------------------------------------------------------

    async def request_all(
        self,
        call: Call,
        path: str,
        validator: PeerResponseValidator,
        read_local: ReadLocal,
        *,
        query: Mapping[str, Any] | None = None,
        each: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> PeerResponses:
        """Send the same request to all live brokers in parallel; this broker's result comes from ``read_local``.

        For a forwarded call, only this broker responds.

        :param read_local: returns this broker's document.
        :param each: additional query parameters by broker.
        :return: the results, and a sentence for each broker without one.
        """
        if call.forwarded:
            return PeerResponses({self._broker_id: await read_local()}, ())
        registrations = await self._registrations.live()
        broker_ids = [broker_id for broker_id in registrations if broker_id != self._broker_id]
        requests = []
        for peer_id in broker_ids:
            full_query = {**(query or {}), **(each or {}).get(peer_id, {})}
            requests.append(Deferred.fromCoroutine(self.request(peer_id, call, path, validator, query=full_query)))
        gathered = DeferredList(requests, consumeErrors=True)
        try:
            documents = {self._broker_id: await read_local()}
            outcomes = await gathered
        except BaseException:
            gathered.cancel()
            raise
        problems = []
        for broker_id, (succeeded, outcome) in zip(broker_ids, outcomes, strict=True):
            if succeeded:
                documents[broker_id] = outcome
            else:
                problems.append(f"broker {broker_id}: {_why(outcome)}")
        return PeerResponses(dict(sorted(documents.items())), problems)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(error: Exception) -> str:
    """Return the reason without a final dot, because callers put it into sentences."""
    from twisted.web.client import ResponseFailed  # imported here because it loads TLS, which _agent has already loaded

    if isinstance(error, ResponseFailed):
        reasons = [failure.getErrorMessage() for failure in error.reasons]
        return reasons[-1].removesuffix(".") if reasons else "the connection was lost"
    return str(error).removesuffix(".") or type(error).__name__


def _why(failure: Failure) -> str:
    """Return the reason as a sentence, also for an unexpected failure, so that it does not hide the other results."""
    return failure.value.detail if isinstance(failure.value, Problem) else failure.getErrorMessage()
