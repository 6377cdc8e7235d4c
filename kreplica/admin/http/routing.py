"""Calls the handler of a request and writes its result or problem as the response.

The numbers of calls and streams, and the duration of each read, are limited.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

from klein import Klein
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeoutError
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.server import Request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from kreplica.admin.http.access import HEALTH
from kreplica.admin.http.api import (
    AnyResponse,
    Authorize,
    Call,
    Download,
    EventStream,
    JsonResponse,
    RawResponse,
    Route,
)
from kreplica.admin.http.calls import CallReader
from kreplica.admin.http.event_streams import EventSender, FileSender, StreamSender
from kreplica.admin.http.failures import problem_of
from kreplica.admin.http.json_stream import dumped, json_pieces
from kreplica.admin.http.problems import Problem
from kreplica.runtime import Runtime

log = Logger()

T = TypeVar("T")

CALLS_MAX = 256
HEALTH_CALLS_MAX = 32
"""Extra calls for health checks, which are served even when slow calls use all of ``CALLS_MAX``."""

STREAMS_MAX = 64
CALL_SECONDS_MAX = 60.0

_RETRY_AFTER_S = {429: 60, 503: 1}
"""Values of ``Retry-After`` by status."""


class Router:
    """Serves routes with one Klein app.

    :param authorize: checks the permissions of the caller before a handler is called.
    :ivar app: the Klein app, with a handler for each route and one for unknown paths and methods.
    """

    def __init__(self, runtime: Runtime, routes: Sequence[Route], authorize: Authorize) -> None:
        self._runtime = runtime
        self._authorize = authorize
        self._calls = 0
        self._streams: dict[Deferred[None], None] = {}
        self.app = Klein()
        self.app.url_map.merge_slashes = False
        for route in routes:
            methods = [route.method, "HEAD"] if route.method == "GET" else [route.method]
            self.app.route(_rule(route.path), methods=methods, endpoint=route.name)(self._endpoint(route))
        self.app.handle_errors(HTTPException)(_not_found)

    def stop(self) -> None:
        """Close all streams."""
        for stream in list(self._streams):
            stream.cancel()

    # --- calls -------------------------------------------------------------------------------------------------------

    def _endpoint(self, route: Route) -> Callable[..., Deferred[None]]:
        reader = CallReader(route, self._runtime.offload)

        def serve(request: Request, **in_path: str) -> Deferred[None]:
            served = Deferred.fromCoroutine(self._serve(route, reader, request, in_path))
            # A disconnect cancels a read; a write in progress is completed.
            return _uncancellable(served) if route.writes else served

        return serve

    async def _serve(self, route: Route, reader: CallReader, request: Request, in_path: dict[str, str]) -> None:
        calls_max = CALLS_MAX + HEALTH_CALLS_MAX if route.path.startswith(HEALTH) else CALLS_MAX
        if self._calls >= calls_max:
            write_problem(request, _too_many("calls", self._calls))
            return
        self._calls += 1
        try:
            reply = await self._reply(route, reader, request, in_path)
        except CancelledError:
            raise
        except Exception as error:
            write_problem(request, problem_of(error) or _unexpected_error(request))
            return
        finally:
            self._calls -= 1
        if isinstance(reply, EventStream):
            _set_stream_headers(request, "text/event-stream")
            await self._stream(request, EventSender(self._runtime.reactor, request, reply.events))
        elif isinstance(reply, Download):
            _set_stream_headers(request, reply.content_type)
            request.setHeader(b"content-disposition", f'attachment; filename="{reply.name}"'.encode())
            await self._stream(request, FileSender(self._runtime.reactor, request, reply.parts))

    async def _reply(self, route: Route, reader: CallReader, request: Request, in_path: dict[str, str]) -> AnyResponse:
        call = await reader.read(request, in_path)
        self._authorize(route, call)
        if route.streams and request.method == b"HEAD":
            _set_stream_headers(request, route.media_type or "text/event-stream")
            return JsonResponse(None)
        if route.streams and len(self._streams) >= STREAMS_MAX:
            raise _too_many("streams", len(self._streams))
        if route.writes:
            reply = await route.handler(call)
        else:
            reply = await self._with_timeout(route, call)
        if isinstance(reply, EventStream):
            return EventStream(self._while_authorized(route, call, reply.events))
        if isinstance(reply, Download):
            return replace(reply, parts=self._while_authorized(route, call, reply.parts))
        if isinstance(reply, RawResponse):
            _write_page(request, reply)
        else:
            await self._write_json(request, reply)
        return reply

    async def _while_authorized(self, route: Route, call: Call, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """Yield the items of a stream until the caller loses the permission for it."""
        async with aclosing(items) as open_items:  # type: ignore[type-var]
            async for item in open_items:
                self._authorize(route, call)
                yield item

    async def _with_timeout(self, route: Route, call: Any) -> AnyResponse:
        handled = Deferred.fromCoroutine(_handle(route, call))
        try:
            return await handled.addTimeout(CALL_SECONDS_MAX, self._runtime.reactor)  # type: ignore[arg-type]
        except DeferredTimeoutError:
            detail = f"the request took longer than {CALL_SECONDS_MAX:.0f} seconds"
            raise Problem(503, "REQUEST_TIMED_OUT", detail, what_to_do="Retry with a smaller request.") from None

    async def _write_json(self, request: Request, response: JsonResponse) -> None:
        _set_caching(request, response.etag, is_public=False)
        if response.location is not None:
            request.setHeader(b"location", response.location.encode())
        if response.cookie is not None:
            request.setHeader(b"set-cookie", response.cookie.encode())
        if response.etag is not None and _matches_etag(request, response.etag):
            request.setResponseCode(304)
            return
        request.setResponseCode(response.status)
        if response.document is None:
            return
        pieces = await json_pieces(self._runtime.reactor, response.document)
        request.setHeader(b"content-type", b"application/json")
        _write_all(request, pieces)

    # --- streams -----------------------------------------------------------------------------------------------------

    async def _stream(self, request: Request, stream: StreamSender[Any]) -> None:
        running = Deferred.fromCoroutine(stream.run())
        self._streams[running] = None
        try:
            await running
        except CancelledError:
            if request.channel is None:
                raise  # the client has disconnected
        finally:
            del self._streams[running]


async def _handle(route: Route, call: Any) -> AnyResponse:
    return await route.handler(call)


def _rule(path: str) -> str:
    """Convert a path such as ``/v1/topics/{topic}`` to Klein's syntax."""
    names = path.split("{")
    return names[0] + "".join(
        f"<path:{name.removesuffix(':path')}>{rest}" if name.endswith(":path") else f"<{name}>{rest}"
        for name, _, rest in (piece.partition("}") for piece in names[1:])
    )


def _uncancellable(served: Deferred[None]) -> Deferred[None]:
    """Return a Deferred with the same result whose cancellation does not cancel the original."""
    outcome: Deferred[None] = Deferred()

    def forward(result: Failure | None) -> None:
        if not outcome.called:
            outcome.callback(result) if not isinstance(result, Failure) else outcome.errback(result)
        elif isinstance(result, Failure):
            log.failure("a write failed after its caller disconnected", result)

    served.addBoth(forward)
    return outcome


# --- responses -------------------------------------------------------------------------------------------------------


def write_problem(request: Request, problem: Problem) -> None:
    """Write a problem as the response."""
    request.setResponseCode(problem.status)
    request.setHeader(b"content-type", b"application/problem+json")
    request.setHeader(b"cache-control", b"no-store")
    request.responseHeaders.removeHeader(b"etag")
    if problem.status in _RETRY_AFTER_S:
        request.setHeader(b"retry-after", b"%d" % _RETRY_AFTER_S[problem.status])
    if problem.status == 401 and not request.responseHeaders.hasHeader(b"www-authenticate"):
        request.setHeader(b"www-authenticate", b'Bearer realm="kreplica"')
    document = problem.document(request.path.decode(errors="replace"))
    _write_all(request, [dumped(document) + b"\n"])


def _write_page(request: Request, page: RawResponse) -> None:
    _set_caching(request, page.etag, is_public=True)
    if page.etag is not None and _matches_etag(request, page.etag):
        request.setResponseCode(304)
        return
    request.setHeader(b"content-type", page.content_type.encode())
    _write_all(request, [page.content])


def _write_all(request: Request, pieces: Sequence[bytes]) -> None:
    if request.channel is None:
        return  # the client has disconnected
    request.setHeader(b"content-length", b"%d" % sum(map(len, pieces)))
    for piece in pieces:
        request.write(piece)


def _set_caching(request: Request, etag: str | None, *, is_public: bool) -> None:
    """Set the headers for caches.

    :param is_public: True if a cache may store the response; otherwise the ETag is for ``If-Match`` only.
    """
    request.setHeader(b"cache-control", b"no-cache" if is_public and etag is not None else b"no-store")
    if etag is not None:
        request.setHeader(b"etag", f'"{etag}"'.encode())


def _set_stream_headers(request: Request, content_type: str) -> None:
    request.setHeader(b"content-type", content_type.encode())
    request.setHeader(b"cache-control", b"no-store")


def _matches_etag(request: Request, etag: str) -> bool:
    """Return True if ``If-None-Match`` of a read matches."""
    header = request.getHeader("if-none-match") if request.method in (b"GET", b"HEAD") else None
    if header is None:
        return False
    etags = [text.strip().removeprefix("W/") for text in header.split(",")]
    return f'"{etag}"' in etags or etags == ["*"]


# --- problems --------------------------------------------------------------------------------------------------------


def _not_found(request: Request, failure: Failure) -> None:
    """Write the problem for an unknown path or method."""
    error = failure.value
    path = request.path.decode(errors="replace")
    if isinstance(error, MethodNotAllowed):
        methods = sorted(error.valid_methods or ())
        request.setHeader(b"allow", ", ".join(methods).encode())
        method = request.method.decode(errors="replace")
        problem = Problem(
            405, "METHOD_NOT_ALLOWED", f"{path} does not support {method}", what_to_do=f"Use {', '.join(methods)}."
        )
    else:
        problem = Problem(
            404, "NOT_FOUND", f"the path {path} does not exist", what_to_do="GET /openapi.json lists all paths."
        )
    write_problem(request, problem)


def _too_many(kind: str, count: int) -> Problem:
    return Problem(503, "OVERLOADED", f"{count} {kind} are in progress, which is the limit", what_to_do="Retry later.")


def _unexpected_error(request: Request) -> Problem:
    log.failure("unexpected error while serving {uri}", uri=request.uri.decode(errors="replace")[:200])
    return Problem(
        500,
        "UNKNOWN_SERVER_ERROR",
        "an unexpected error; see the broker's log",
        what_to_do="Report the error with its log entry.",
    )
