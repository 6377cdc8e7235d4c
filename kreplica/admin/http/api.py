"""Defines routes of the admin API, whose handlers take a validated call and return a response.

Validation and the OpenAPI document use the same route definition. Handlers do not depend on HTTP,
except for status codes, so tests can call them with a ``Call``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kreplica.admin.http.callers import ANYONE, Caller

Schema = Mapping[str, Any]
"""A JSON Schema (2020-12), as used by OpenAPI 3.1."""

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query or path parameter.

    :param schema: the schema of one value; ``integer``, ``number``, ``boolean`` and ``string`` are parsed from text.
    :param default: the value if the parameter is absent.
    """

    name: str
    schema: Schema
    description: str
    default: Any = None


@dataclass(frozen=True, slots=True)
class Call:
    """A request after validation.

    :param path: decoded path parameters.
    :param query: all query parameters of the route, with defaults.
    :param body: the parsed JSON body; None if the route has none.
    :param dry_run: True to write nothing (``?dry_run=true``).
    :param if_match: the required ETag without quotes; None to accept any.
    :param caller: the authenticated sender, whose permissions apply.
    :param authorization: the original header, for requests to other brokers if brokers have no token.
    :param last_event_id: the ID of the last event that the caller received (``Last-Event-ID``); None for a new stream.
    :param forwarded: True if another broker forwarded the request; it must not be forwarded again.
    """

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    dry_run: bool = False
    if_match: str | None = None
    authorization: str | None = field(default=None, repr=False)
    forwarded: bool = False
    last_event_id: str | None = None
    caller: Caller = ANYONE


@dataclass(frozen=True, slots=True)
class JsonResponse:
    """A response with a document.

    :param document: the JSON body; None for a response without a body (status 204).
    :param etag: the ETag of the document, without quotes.
    :param location: the URL of a created resource.
    :param cookie: the value of ``Set-Cookie``.
    """

    document: Any
    status: int = 200
    etag: str | None = None
    location: str | None = None
    cookie: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream (``text/event-stream``).

    :param data: converted to JSON.
    :param event_id: sent back by a reconnecting client (``Last-Event-ID``).
    """

    name: str
    data: Any
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class EventStream:
    """A stream of events until the client or the server closes it.

    :param events: closed (``aclose``) when the client disconnects.
    """

    events: AsyncIterator[ServerEvent]


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response that is not a JSON document, such as a file of the dashboard or the metrics.

    :param content_type: with a charset for text.
    :param etag: ETag of the content, without quotes; None if the content is generated for each request.
    """

    content: bytes
    content_type: str
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Download:
    """A file that is sent while it is generated.

    :param name: suggested file name, in ASCII.
    :param parts: closed (``aclose``) when the client disconnects; after an error, the connection is closed early.
    """

    name: str
    content_type: str
    parts: AsyncIterator[bytes]


AnyResponse = JsonResponse | EventStream | RawResponse | Download
"""A response of any kind."""

Handler = Callable[[Call], Awaitable[AnyResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    :param path: as in OpenAPI, such as ``/v1/topics/{topic}``; ``{group:path}`` also matches slashes.
    :param summary: one line for the OpenAPI document.
    :param response: the schema of a successful response; None without a JSON body.
    :param status: the status of a successful response.
    :param body: the schema of the request body; None without a body.
    :param query: the query parameters, and descriptions of path parameters; ``dry_run`` is added to all writes.
    :param znodes: the znodes that the route writes, for the OpenAPI document.
    :param problems: additional error statuses with their descriptions; 412 only for routes that check ``If-Match``.
    :param other_responses: non-error responses with other statuses: description and schema.
    :param streams: True if the response is an ``EventStream``, or a ``Download``, which has a ``media_type``.
    :param media_type: the content type of a ``RawResponse`` or ``Download``.
    :param other_media_types: further content types of a ``Download``.
    :param is_deprecated: marks the route as deprecated in the OpenAPI document.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    response: Schema | None = None
    status: int = 200
    body: Schema | None = None
    query: Sequence[Parameter] = ()
    znodes: Sequence[str] = ()
    problems: Mapping[int, str] = field(default_factory=dict)
    other_responses: Mapping[int, tuple[str, Schema]] = field(default_factory=dict)
    streams: bool = False
    media_type: str | None = None
    other_media_types: Sequence[str] = ()
    is_deprecated: bool = False

    @property
    def writes(self) -> bool:
        """True if the route changes state."""
        return self.method not in ("GET", "HEAD")


    @property
    def name(self) -> str:
        """Method and path, which identify the route."""
        return f"{self.method} {self.path}"


Authorize = Callable[[Route, Call], None]
"""Checks that the caller is authorized for a call of a route; raises ``Problem`` with status 403 if not."""


class Resource(Protocol):
    """A part of the admin API."""

    def routes(self) -> Sequence[Route]:
        """Return all routes of the resource."""


def page_of(names: Sequence[str], call: Call) -> tuple[Sequence[str], str | None]:
    """Return one page of names, and the last name if more names follow, otherwise None.

    The query has ``limit`` (``LIMIT``) and ``after`` (``AFTER``).

    :param names: all names, sorted.
    """
    after, limit = call.query.get("after"), call.query["limit"]
    first = 0 if after is None else bisect_right(names, after)
    page = names[first : first + limit]
    return page, page[-1] if first + limit < len(names) else None


LIMIT = Parameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": 10_000}, "Maximum number of entries.", default=1000
)
AFTER = Parameter(
    "after", {"type": "string", "maxLength": 1000}, "Only entries after this one: `next` of the previous response."
)
