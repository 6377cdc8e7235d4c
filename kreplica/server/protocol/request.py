"""One request in flight on one connection, as its handler sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.runtime.slices import Pending, Steps
from kreplica.server.protocol.connection import Connection
from kreplica.server.protocol.metrics import ApiMetrics
from kreplica.server.transport.outgoing_buffers import Piece, framed
from kreplica.wire.building import SlicedBuilder
from kreplica.wire.headers import build_response_header
from kreplica.wire.messages import FETCH, PRODUCE, Api
from kreplica.wire.schema import MessageParser

log = Logger()

T = TypeVar("T")

Amend = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns the response body to send instead of the given one."""


LARGE_BYTES = 16 * 1024
"""Requests of at least this size are parsed in slices."""

COPIED_BYTES_MAX = 256 * 1024
"""Large frames up to this size are copied before they are handled in slices; longer ones stay in the read buffer."""

NEVER = 2**31
"""Larger than any frame size."""

_BUILT_AT_ONCE = frozenset({PRODUCE.key, FETCH.key})
"""APIs whose responses are built in one step."""


class Route:
    """Handler, parser and builder for requests of one API and version.

    :ivar large_bytes: frames of at least this size are parsed in slices.
    :ivar sliced_build: builds responses in slices; None if they are built in one step, by ``build``.
    """

    __slots__ = (
        "_amend",
        "api",
        "build",
        "handle",
        "large_bytes",
        "metrics",
        "parse",
        "response_header_version",
        "sliced_build",
        "version",
    )

    def __init__(
        self, api: Api, version: int, handle: Handler, metrics: ApiMetrics, parse: MessageParser
    ) -> None:
        self.api = api
        self.version = version
        self.handle = handle
        self.metrics = metrics
        self.parse = parse
        self.build = api.response.build_pieces
        self.sliced_build: SlicedBuilder | None = None
        if api.key not in _BUILT_AT_ONCE:
            self.sliced_build = api.response.sliced_builder(version)
        self.large_bytes = NEVER if api is PRODUCE else LARGE_BYTES
        self.response_header_version = api.response_header_version(version)
        self._amend: Amend | None = None

    def with_sliced_build(self) -> Route:
        """Return a copy of the route that builds responses in slices."""
        route = Route(self.api, self.version, self.handle, self.metrics, self.parse)
        route._amend = amend = self._amend
        plain = self.api.response.sliced_builder(self.version)
        route.sliced_build = plain if amend is None else lambda value, prefix: plain(amend(value), prefix)
        return route

    def with_amendment(self, amend: Amend) -> Route:
        """Return a copy of the route that amends response bodies, after earlier amendments."""
        route = Route(self.api, self.version, self.handle, self.metrics, self.parse)
        earlier, build, sliced_build = self._amend, route.build, route.sliced_build

        def amend_all(value: dict[str, Any]) -> dict[str, Any]:
            return amend(value if earlier is None else earlier(value))

        def build_amended(version: int, value: dict[str, Any], prefix: bytes = b"") -> list[Any]:
            return build(version, amend_all(value), prefix)

        route._amend = amend_all
        route.build = build_amended
        if sliced_build is not None:
            plain = sliced_build
            route.sliced_build = lambda value, prefix: plain(amend_all(value), prefix)
        return route


class Request:
    """One request; its handler responds exactly once, now or later.

    ``body`` is the result of ``Schema.parse``.  **Memoryviews in it are valid only until the handler returns**: their
    buffers are reused, so a handler must copy the data that it keeps.

    :ivar size: frame size in bytes.
    :ivar is_waiting: the request has no response yet and is not abandoned.
    :ivar is_complete: the response is built, or the request needs none.
    :ivar has_waited: the response waited for replicas or new records; its time counts as waiting time.
    :ivar is_sliced: the response is prepared and built in slices (``build_in_slices``).
    """

    __slots__ = (
        "_abandoned",
        "_has_responded",
        "_received_s",
        "_route",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "has_waited",
        "is_complete",
        "is_sliced",
        "is_waiting",
        "pieces",
        "response_bytes",
        "size",
    )

    def __init__(
        self,
        connection: Connection,
        route: Route,
        correlation_id: int,
        client_id: str | None,
        body: dict[str, Any],
        size: int,
        received_s: float,
    ) -> None:
        self.connection = connection
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.size = size
        self.is_waiting = True
        self.has_waited = False
        self.is_complete = False
        self.is_sliced = False
        self._route = route
        self._received_s = received_s
        self._has_responded = False
        self._abandoned: list[Callable[[], object]] | None = None
        # Set when the response is built; None without a response.
        self.pieces: list[Piece] | None
        self.response_bytes: int

    def __repr__(self) -> str:
        state = "waiting" if self.is_waiting else "responded" if self._has_responded else "abandoned"
        return f"<{self.api.name} {self.version} #{self.correlation_id}, {state}>"

    @property
    def description(self) -> str:
        """API, version, size, client ID and peer, for the log."""
        route = self._route
        client = f"client {self.client_id!r} at {self.connection.peer}"
        return f"{route.api.name} v{route.version} ({self.size} bytes) from {client}"

    @property
    def api(self) -> Api:
        return self._route.api

    @property
    def version(self) -> int:
        return self._route.version

    def respond(self, body: dict[str, Any]) -> None:
        """Send the response, in the order of requests.  Does nothing if the connection has closed.

        A body that does not fit the schema is a bug in the handler: the error is logged and closes the connection,
        since the client would never get a response.

        :param body: see ``Schema.build``; records may be a range of a file.
        :raise RuntimeError: the request already has a response.
        """
        if not self.is_waiting:
            self._reject_second()
            return
        route = self._route
        header = build_response_header(route.response_header_version, self.correlation_id)
        build = route.sliced_build
        try:
            if build is None:
                pieces, size = framed(route.build(route.version, body, header))
            else:
                steps = build(body, header)
                built = self.connection.slices.begin(steps)
                if isinstance(built, Pending):
                    self._build_remaining(steps)
                    return
                pieces, size = framed(built)
        except Exception:
            self._cannot_build(Failure())
            return
        self._finish(pieces, size)

    def in_slices(self, steps: Steps[T]) -> Deferred[T]:
        """Run long work of this request after the work already queued; its connection is not read meanwhile.

        :return: fires with the generator's result; cancelled when the connection closes.
        """
        connection = self.connection

        def resume(result: Any) -> Any:
            connection.resume()
            return result

        connection.suspend()
        result = connection.slices.run(connection, steps, self.size)
        result.addBoth(resume)
        self.on_abandoned(result.cancel)
        return result

    def build_in_slices(self) -> None:
        """Build the response in slices, since it will be large."""
        self.is_sliced = True
        self._route = self._route.with_sliced_build()

    def amend_response(self, amend: Amend) -> None:
        """Amend the body of the response; must be called before ``respond``."""
        self._route = self._route.with_amendment(amend)

    def complete_without_response(self) -> None:
        """Complete the request without a response, as for Produce with acks=0."""
        if not self.is_waiting:
            self._reject_second()
            return
        self._finish(None, 0)

    def abort(self, reason: str) -> None:
        """Close the connection, which abandons this request and all later ones.

        :param reason: for the log.
        """
        if self.is_waiting:
            self._route.metrics.errors += 1
        self.connection.abort(reason)

    def on_abandoned(self, callback: Callable[[], object]) -> None:
        """Call back once if the connection closes before the response; immediately if it has closed."""
        if self.is_waiting:
            if self._abandoned is None:
                self._abandoned = []
            self._abandoned.append(callback)
        elif not self._has_responded:
            callback()

    def abandon(self) -> list[Callable[[], object]]:
        """Drop the response, since the connection has closed.

        :return: callbacks that the caller runs when its own state is consistent.
        """
        self.pieces = None
        self.is_waiting = False
        callbacks, self._abandoned = self._abandoned, None
        return callbacks or []

    def _build_remaining(self, steps: Steps[list[Any]]) -> None:
        """Build the remaining part of a large response in slices; for the handler, the request is already complete."""
        building = self.in_slices(steps)
        self.is_waiting = False
        self._has_responded = True
        building.addCallback(framed).addCallback(lambda response: self._finish(*response))
        building.addErrback(self._cannot_build)
        building.addErrback(lambda failure: log.failure("responding to {request!r} failed", failure, request=self))

    def _cannot_build(self, failure: Failure) -> None:
        if failure.check(CancelledError) is None:
            log.failure("the response to {request!r} cannot be built", failure, request=self)
            self.abort(f"the response to {self.api.name} cannot be built")

    def _finish(self, pieces: list[Piece] | None, size: int) -> None:
        self.is_waiting = False
        self.is_complete = True
        self._has_responded = True
        self._abandoned = None
        self.pieces = pieces
        self.response_bytes = size
        connection = self.connection
        metrics = self._route.metrics
        metrics.bytes_out += size
        seconds = connection.seconds() - self._received_s
        metrics.count_response(seconds)
        if self.has_waited:
            metrics.waits += 1
            metrics.wait_time_s += seconds
        connection.response_ready(self)

    def _reject_second(self) -> None:
        if self._has_responded:
            raise RuntimeError(f"{self!r}: it already has a response")


Handler = Callable[[Request], None]
