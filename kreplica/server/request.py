"""One request in flight on one connection, as its handler sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.logger import Logger

from kreplica.server.metrics import ApiMetrics
from kreplica.server.pieces import Piece, framed
from kreplica.wire.headers import build_response_header
from kreplica.wire.messages import Api
from kreplica.wire.schema import MessageParser

if TYPE_CHECKING:
    from kreplica.server.connection import Connection
    from kreplica.server.produce_runs import RunHandler


log = Logger()

Amend = Callable[[dict[str, Any]], dict[str, Any]]
"""From the body of an answer to what it is to say instead."""


class Route:
    """All that requests of one API and version share."""

    __slots__ = ("_amend", "api", "build", "handle", "metrics", "parse", "response_header_version", "version")

    def __init__(self, api: Api, version: int, handle: Handler, metrics: ApiMetrics) -> None:
        self.api = api
        self.version = version
        self.handle = handle
        self.metrics = metrics
        self.parse: MessageParser = api.request.parser(version)
        self.build = api.response.build_pieces
        self.response_header_version = api.response_header_version(version)
        self._amend: Amend | None = None

    def amended(self, amend: Amend) -> Route:
        """The same, but for what an answer says when it is built; of several the first comes first."""
        route = Route(self.api, self.version, self.handle, self.metrics)
        before, build = self._amend, route.build

        def after(value: dict[str, Any]) -> dict[str, Any]:
            return amend(value if before is None else before(value))

        def build_amended(version: int, value: dict[str, Any], prefix: bytes = b"") -> list[Any]:
            return build(version, after(value), prefix)

        route._amend = after
        route.build = build_amended
        return route


class Request:
    """A request; its handler answers it exactly once, now or later.

    ``body`` is what ``Schema.parse`` gives.  **Memoryviews in it are good only until the handler returns**: they are
    views of buffers that are used again, so a handler copies what it has to keep.

    :ivar size: of its frame, in bytes.
    :ivar is_waiting: it is neither answered nor abandoned.
    """

    __slots__ = (
        "_abandoned",
        "_is_answered",
        "_received_s",
        "_route",
        "answer_bytes",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "is_waiting",
        "pieces",
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
        self._route = route
        self._received_s = received_s
        self._is_answered = False
        self._abandoned: list[Callable[[], object]] | None = None
        # Of the answer, from when there is one until it is sent or dropped; None for no answer.
        self.pieces: list[Piece] | None
        self.answer_bytes: int

    def __repr__(self) -> str:
        state = "waiting" if self.is_waiting else "answered" if self._is_answered else "abandoned"
        return f"<{self.api.name} {self.version} #{self.correlation_id}, {state}>"

    @property
    def api(self) -> Api:
        return self._route.api

    @property
    def version(self) -> int:
        return self._route.version

    def answer(self, body: dict[str, Any]) -> None:
        """Answer.  Answers leave in the order of their requests; after the connection has closed nothing happens.

        A body that does not fit the schema is a fault of the handler: it is logged, and closes the connection, since
        nobody would answer the request any more.

        :param body: as ``Schema.build`` takes it; records may be a range of a file.
        :raise RuntimeError: where it was answered before.
        """
        if not self.is_waiting:
            self._refuse_second()
            return
        route = self._route
        header = build_response_header(route.response_header_version, self.correlation_id)
        try:
            pieces, size = framed(route.build(route.version, body, header))
        except Exception:
            log.failure("the answer of {request!r} cannot be built", request=self)
            self.abort(f"the answer to its {self.api.name} cannot be built")
            return
        self._finish(pieces, size)

    def amend_answer(self, amend: Amend) -> None:
        """Have the answer, when there is one, say what this makes of it; before it is answered."""
        self._route = self._route.amended(amend)

    def answer_nothing(self) -> None:
        """Be done without an answer, as Produce with acks=0 is."""
        if not self.is_waiting:
            self._refuse_second()
            return
        self._finish(None, 0)

    def abort(self, reason: str) -> None:
        """Close the connection, which abandons this request and all behind it.

        :param reason: for the log.
        """
        if self.is_waiting:
            self._route.metrics.errors += 1
        self.connection.abort(reason)

    def on_abandoned(self, callback: Callable[[], object]) -> None:
        """Call back, once, if the connection closes before the answer; at once where it has closed already."""
        if self.is_waiting:
            if self._abandoned is None:
                self._abandoned = []
            self._abandoned.append(callback)
        elif not self._is_answered:
            callback()

    def abandon(self) -> list[Callable[[], object]]:
        """The connection has closed: drop the answer; the caller runs the callbacks when its own state is settled."""
        self.pieces = None
        self.is_waiting = False
        callbacks, self._abandoned = self._abandoned, None
        return callbacks or []

    def _finish(self, pieces: list[Piece] | None, size: int) -> None:
        self.is_waiting = False
        self._is_answered = True
        self._abandoned = None
        self.pieces = pieces
        self.answer_bytes = size
        connection = self.connection
        metrics = self._route.metrics
        metrics.bytes_out += size
        metrics.answered(connection.seconds() - self._received_s)
        connection.answered(self)

    def _refuse_second(self) -> None:
        if self._is_answered:
            raise RuntimeError(f"{self!r}: it was answered before")


Handler = Callable[[Request], None]


@dataclass(frozen=True, slots=True)
class HandlerEntry:
    """Who handles which versions of an API.

    :param versions_min: the lowest version served; what is not served is not advertised.
    :param versions_max: the highest.
    :param handle_run: of Produce, who handles requests that are alike together; None where each is to be seen.
    """

    api: Api
    versions_min: int
    versions_max: int
    handle: Handler
    handle_run: RunHandler | None = None

    @classmethod
    def of(cls, api: Api, handle: Handler) -> HandlerEntry:
        """Serve all versions that the API has a schema for."""
        return cls(api, api.versions[0], api.versions[1], handle)


HandlerTable = dict[int, HandlerEntry]
"""By API key."""
