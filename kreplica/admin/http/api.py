"""What a resource of the admin API is made of: routes, whose handlers get a checked call and give an answer.

A route says all that the OpenAPI document says of it: what is documented is what is checked, so the document is true.
Handlers know nothing of HTTP beyond statuses; tests call them with a ``Call`` of their own making.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Schema = Mapping[str, Any]
"""A JSON Schema (2020-12), as OpenAPI 3.1 has them."""

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query (or of a path, where the route's path names it).

    :param schema: of one value; ``integer``, ``number``, ``boolean`` and ``string`` are read from text.
    :param default: what the handler gets where the parameter is absent.
    """

    name: str
    schema: Schema
    description: str
    default: Any = None


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was checked against its route.

    :param path: the values of the path's parameters, decoded.
    :param query: of every parameter of the route, absent ones by their default.
    :param body: what the JSON body holds; None where the route takes none.
    :param dry_run: whether nothing is to be written (``?dry_run=true``).
    :param if_match: the ETag that must still hold, without quotes; None where any does.
    :param authorization: the header as it came, for what is asked of other brokers on behalf of the caller.
    :param last_event_id: of a stream that the caller had before, what came last (``Last-Event-ID``); None where there
        was none.
    :param forwarded: whether another broker asks for a caller of its own: it is answered here or not at all.
    """

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    dry_run: bool = False
    if_match: str | None = None
    authorization: str | None = None
    forwarded: bool = False
    last_event_id: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """:param document: becomes the JSON body; None for an answer without one (status 204).

    :param etag: of what is answered, without quotes: for ``If-Match`` of a later write, and for ``If-None-Match``.
    :param location: where what was made is found.
    """

    document: Any
    status: int = 200
    etag: str | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream (``text/event-stream``).

    :param data: becomes JSON.
    :param event_id: by which a client that comes again says what it had last (``Last-Event-ID``).
    """

    name: str
    data: Any
    event_id: str | None = None


@dataclass(frozen=True, slots=True)
class EventStream:
    """An answer that goes on until the client or the server closes it.

    :param events: closed (``aclose``) when the client is gone.
    """

    events: AsyncIterator[ServerEvent]


@dataclass(frozen=True, slots=True)
class Page:
    """An answer that is served as it is.

    :param content_type: with its charset where it is text.
    :param etag: of the content, without quotes, for ``If-None-Match``; None where it is made anew each time.
    """

    content: bytes
    content_type: str
    etag: str | None = None


Reply = Answer | EventStream | Page

Handler = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    :param path: as OpenAPI has it: ``/v1/topics/{topic}``; ``{group:path}`` takes slashes too.
    :param summary: one line, for the document.
    :param answer: the schema of a successful answer; None where it has no JSON body.
    :param status: of a successful answer.
    :param body: the schema of the request's body; None where it takes none.
    :param query: its parameters; ``dry_run`` is added to all that write.
    :param znodes: for a route that writes: the paths that it writes, for the document.
    :param problems: the statuses, beside those that any route has, that it answers when something is wrong, each with
        when.
        A 412 is of those alone that look at ``If-Match``.
    :param other_answers: answers with a body of their own that are no problems, by status: when, and their schema.
    :param streams: whether the answer is an ``EventStream``.
    :param media_type: of a ``Page``.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    answer: Schema | None = None
    status: int = 200
    body: Schema | None = None
    query: Sequence[Parameter] = ()
    znodes: Sequence[str] = ()
    problems: Mapping[int, str] = field(default_factory=dict)
    other_answers: Mapping[int, tuple[str, Schema]] = field(default_factory=dict)
    streams: bool = False
    media_type: str | None = None

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return self.method not in ("GET", "HEAD")


class Resource(Protocol):
    """A part of the admin API."""

    def routes(self) -> Sequence[Route]:
        """All of its routes."""


def page_of(names: Sequence[str], call: Call) -> tuple[Sequence[str], str | None]:
    """The names that a call for a list gets, and after which its next one goes on (None: that was all).

    The query has ``limit`` (``LIMIT``) and ``after`` (``AFTER``).

    :param names: sorted.
    """
    after, limit = call.query.get("after"), call.query["limit"]
    first = 0 if after is None else bisect_right(names, after)
    shown = names[first : first + limit]
    return shown, shown[-1] if first + limit < len(names) else None


LIMIT = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": 10_000}, "So many at most.", default=1000)
AFTER = Parameter(
    "after", {"type": "string", "maxLength": 1000}, "Only what comes after this one: `next` of the answer before."
)
