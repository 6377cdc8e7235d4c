"""Client of the REST admin API: documents, paged lists, writes and event streams.

A client belongs to one run of a reactor.  The messages of its exceptions are meant for users.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast
from urllib.parse import urlencode

import treq
from OpenSSL import SSL
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, ConnectingCancelledError, DNSLookupError, TimeoutError
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import (
    Agent,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseDone,
    ResponseFailed,
    ResponseNeverReceived,
)
from twisted.web.http import PotentialDataLoss

from kreplica.cli.http.https_policy import https_policy
from kreplica.cli.http.server_events import EventParser, EventTooLong, ReceivedEvent
from kreplica.errors import KreplicaError

T = TypeVar("T")

Document: TypeAlias = dict[str, Any]

RESPONSE_TIME_S_MAX = 60.0
CONNECT_TIME_S_MAX = 10.0
SILENCE_S_MAX = 60.0
"""Maximum pause in an event stream; a server without new events sends a comment every 15 seconds."""

RESPONSE_SIZE_MAX = 256 * 1024 * 1024
EVENTS_BUFFERED_MAX = 1000


@dataclass(frozen=True, slots=True)
class Server:
    """Address and credentials of an admin API.

    :param url: ``http://host:port`` or ``https://...``, without trailing slash.
    :param token: bearer token, if required.
    :param ca_file: certificates (PEM) to trust instead of the system's.
    :param user: user with a password, instead of a token.
    :param certificate_file: private key and certificates (PEM) of this client.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    certificate_file: Path | None = None


class AdminUnreachable(KreplicaError):
    """No response, or a response that is not from an admin API."""


class RequestRejected(KreplicaError):
    """The server rejected the request.

    :ivar problem: problem document (RFC 9457).
    """

    def __init__(self, status: int, problem: Document) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or f"status {status}"))
        self.status = status
        self.problem = problem


@dataclass(frozen=True, slots=True)
class AdminResponse:
    """Response to a request.

    :param document: None if the response has no body.
    :param etag: value for ``if_match`` of a later write, without quotes.
    """

    document: Any
    etag: str | None


class RestClient:
    """Client of one admin API."""

    def __init__(self, server: Server, reactor: Any) -> None:
        self.reactor = reactor
        self._server = server
        # Connections are not reused: while the user answers a question, the reactor does not run and would not notice
        # that a connection was closed.
        pool = HTTPConnectionPool(reactor, persistent=False)
        policy = https_policy(server.ca_file, server.certificate_file)
        agent = Agent(reactor, policy, connectTimeout=CONNECT_TIME_S_MAX, pool=pool)
        self._http = treq.client.HTTPClient(agent)

    async def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return the document at a path.

        :param query: parameters whose value is None are omitted.
        :raise AdminUnreachable: no admin API responded.
        :raise RequestRejected: the request was rejected.
        """
        return (await self.send("GET", path, query=query)).document

    async def get_list(
        self, path: str, member: str, query: Mapping[str, Any] | None = None, limit: int | None = None
    ) -> Document:
        """Return a paged list: the document of the first page, with the entries of all pages in ``member``.

        Pages of a list that is not sorted by its key are read by number. Raises the same exceptions as ``get``.

        :param limit: maximum number of entries; None for all.
        """
        parameters = dict(query or {})
        if limit is not None:
            parameters["limit"] = min(limit, parameters.get("limit", limit))
        document = cast(Document, await self.get(path, parameters))
        rows, after, number = document[member], document.get("next"), 1
        while limit is None or len(rows) < limit:
            number += 1
            if after is not None:
                page = await self.get(path, {**parameters, "after": after})
            elif parameters.get("sort") is not None and len(rows) < document.get("total", 0):
                page = await self.get(path, {**parameters, "page": number})
                if not page[member]:
                    break
            else:
                break
            rows += page[member]
            after = page.get("next")
        if limit is not None:
            del rows[limit:]
        if "next" in document:
            document["next"] = None
        return document

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        if_match: str | None = None,
    ) -> AdminResponse:
        """Send a request and return the response. Raises the same exceptions as ``get``.

        :param if_match: ETag that must still be current, without quotes.
        """
        headers = self._headers("application/json")
        if body is not None:
            headers["Content-Type"] = "application/json"
        if if_match is not None:
            headers["If-Match"] = f'"{if_match}"'
        data = None if body is None else json.dumps(body).encode()
        try:
            exchange = Deferred.fromCoroutine(self._exchange(method, self._url(path, query), headers, data))
            response, content = await _with_timeout(self.reactor, RESPONSE_TIME_S_MAX, exchange)
        except CancelledError:
            raise
        except Exception as error:
            raise self._unreachable(error) from error
        document = self._document(response, content)
        if response.code >= 400:
            raise RequestRejected(response.code, document)
        etag = response.headers.getRawHeaders("etag", [None])[0]
        return AdminResponse(document, None if etag is None else etag.removeprefix("W/").strip('"'))

    async def events(
        self, path: str, query: Mapping[str, Any] | None = None, last_event_id: str | None = None
    ) -> AsyncGenerator[ReceivedEvent, None]:
        """Yield the events of a stream until the server ends it.

        :param last_event_id: ID of the last event received; the server continues after it.
        :raise AdminUnreachable: no admin API responded, the connection was lost, or a pause exceeded ``SILENCE_S_MAX``.
        :raise RequestRejected: the request was rejected.
        """
        headers = self._headers("text/event-stream")
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        try:
            request = self._http.get(self._url(path, query), headers=headers, unbuffered=True)
            response = await _with_timeout(self.reactor, RESPONSE_TIME_S_MAX, request)
            if response.code != 200:
                raise RequestRejected(response.code, self._document(response, await _content(response)))
            body = _EventBody(self.reactor)
            response.deliverBody(body)
            async with aclosing(body.events()) as events:
                async for event in events:
                    yield event
        except (CancelledError, KreplicaError):
            raise
        except Exception as error:
            raise self._unreachable(error) from error

    def _headers(self, accept: str) -> dict[str, str]:
        headers = {"Accept": accept, "User-Agent": "kreplica"}
        if self._server.token is not None:
            headers["Authorization"] = f"Bearer {self._server.token}"
        elif self._server.user is not None:
            login = f"{self._server.user}:{self._server.password}".encode()
            headers["Authorization"] = f"Basic {b64encode(login).decode()}"
        return headers

    def _url(self, path: str, query: Mapping[str, Any] | None) -> str:
        parameters = {name: _query_text(value) for name, value in (query or {}).items() if value is not None}
        return f"{self._server.url}{path}{'?' if parameters else ''}{urlencode(parameters)}"

    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], data: bytes | None
    ) -> tuple[Any, bytes]:
        response = await self._http.request(method, url, headers=headers, data=data, unbuffered=True)
        return response, await _content(response)

    def _document(self, response: Any, content: bytes) -> Any:
        if not content and response.code < 400:
            return None
        content_type = (response.headers.getRawHeaders("content-type", [""])[0]).partition(";")[0].strip()
        try:
            if content_type not in ("application/json", "application/problem+json"):
                raise ValueError(content_type)
            return json.loads(content)
        except ValueError:
            raise AdminUnreachable(
                f"{self._server.url} responded with status {response.code} and {content_type or 'no content type'}: "
                "this is not a kreplica admin API; check the address"
            ) from None

    def _unreachable(self, error: Exception) -> AdminUnreachable:
        return AdminUnreachable(
            f"no response from {self._server.url}: {_reason(error)}.  "
            "Use --admin URL or KREPLICA_ADMIN to set the address of a broker's admin API"
        )


class _EventBody(Protocol):
    """Body of an event stream: pauses while too many events are buffered, and closes after a long silence."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._parser = EventParser()
        self._events: deque[ReceivedEvent] = deque()
        self._ended: Failure | None = None
        self._pending: Deferred[None] | None = None

    async def events(self) -> AsyncGenerator[ReceivedEvent, None]:
        try:
            while True:
                while self._events:
                    yield self._events.popleft()
                if self._ended is not None:
                    if not self._ended.check(ResponseDone, PotentialDataLoss):
                        self._ended.raiseException()
                    return
                self._pending = pending = Deferred[None]()
                self.transport.resumeProducing()  # type: ignore[union-attr]
                await _with_timeout(self._reactor, SILENCE_S_MAX, pending)
        finally:
            self._pending = None
            self._close()

    def dataReceived(self, data: bytes) -> None:
        try:
            self._events.extend(self._parser.feed(data))
        except EventTooLong:
            self._ended = Failure()
        if len(self._events) > EVENTS_BUFFERED_MAX:
            self.transport.pauseProducing()  # type: ignore[union-attr]
        self._wake()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._ended = self._ended or reason
        self._wake()

    def _wake(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.callback(None)

    def _close(self) -> None:
        if self._ended is None and self.transport is not None:
            self.transport.loseConnection()


async def _with_timeout(reactor: Any, seconds: float, pending: Deferred[T]) -> T:
    """Return the result of a Deferred, which is cancelled after ``seconds``.

    :raise TimeoutError: the timeout expired.
    :raise CancelledError: the caller was cancelled; without this function, treq would report a failed request.
    """
    is_late = False

    def cancel() -> None:
        nonlocal is_late
        is_late = True
        pending.cancel()

    timer = reactor.callLater(seconds, cancel)
    try:
        return await pending
    except Exception as error:
        if is_late:
            raise TimeoutError from error
        if isinstance(_cause(error), CancelledError):
            raise CancelledError from error
        raise
    finally:
        if timer.active():
            timer.cancel()


async def _content(response: Any) -> bytes:
    chunks: list[bytes] = []
    size = 0

    def add_chunk(chunk: bytes) -> None:
        nonlocal size
        size += len(chunk)
        if size > RESPONSE_SIZE_MAX:
            raise AdminUnreachable(f"the response is larger than {RESPONSE_SIZE_MAX:,} bytes")
        chunks.append(chunk)

    await treq.collect(response, add_chunk)
    return b"".join(chunks)


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cause(error: BaseException) -> BaseException:
    """Return the error inside Twisted's wrapper exceptions."""
    while isinstance(error, ResponseFailed | ResponseNeverReceived | RequestTransmissionFailed) and error.reasons:
        error = error.reasons[-1].value
    return error


def _reason(request_error: Exception) -> str:
    """Return the reason of a failed request as text."""
    error = _cause(request_error)
    if isinstance(error, SSL.Error):
        problem = error.args[0][-1][-1] if error.args and error.args[0] else "the server does not use TLS"
        return f"{problem} (use --ca-file to set the trusted certificates)"
    if isinstance(error, DNSLookupError):
        return "unknown host name"
    if isinstance(error, ConnectingCancelledError | TimeoutError):
        return "timeout"
    if isinstance(error, ConnectError) and error.osError:
        return os.strerror(error.osError)
    return str(error).strip().rstrip(".") or type(error).__name__
