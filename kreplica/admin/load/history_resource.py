"""``/v1/history`` and the histories of topics and groups: chart data of the last hours, from all brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from kreplica.admin.cluster_state.published_metadata import PublishedMetadata, once_complete, topic_of
from kreplica.admin.http.api import Call, JsonResponse, Parameter, Route
from kreplica.admin.http.problems import SHOWN_MAX, Problem, similar_name
from kreplica.admin.http.schemas import BROKER_ID, COUNT, IN_TOPIC, STRING, TIME_MS, listing, record
from kreplica.admin.load.history import COARSE_POINTS, FINE_MS, FINE_POINTS, SERIES, History, Span, span_of
from kreplica.admin.load.subject_histories import GROUP_SERIES, SUBJECTS_MAX, TOPIC_SERIES, SubjectHistories
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.responses import PeerResponseValidator

PATH = "/v1/history"

DEFAULT_MS = FINE_MS * FINE_POINTS

_VALUES = {"type": "array", "items": {"type": ["number", "null"]}, "maxItems": COARSE_POINTS}
POINTS = record({"mean": _VALUES, "peak": _VALUES}, title="HistoryPoints")
BROKER = record(
    {"broker_id": BROKER_ID, "series": {"type": "object", "additionalProperties": POINTS}}, title="BrokerHistory"
)
RESPONSE = record(
    {
        "at_ms": TIME_MS,
        "from_ms": {**TIME_MS, "description": "Time of the first point, in milliseconds since 1970."},
        "step_ms": {**COUNT, "description": "Time between two points: 5 seconds, or a minute for longer ranges."},
        "points": COUNT,
        "brokers": listing(BROKER),
        "problems": {**listing(STRING), "description": "A sentence for each broker that did not respond."},
    },
    title="History",
)
PEER_RESPONSE = PeerResponseValidator(RESPONSE)

TOPIC_PATH, GROUP_PATH = "/v1/topics/{topic}/history", "/v1/groups/{group:path}/history"

_TIME = {"type": "integer", "minimum": -(2**53), "maximum": 2**53}
_MEANING = "milliseconds since 1970; a negative value is relative to now"
_IN_GROUP = Parameter("group", {"type": "string", "minLength": 1}, "The group ID, percent-encoded.")

Series = Mapping[str, tuple[str, str]]
Points = Mapping[str, Mapping[str, Sequence[float | None]]]
ReadLocal = Callable[[Sequence[str], Span], Points | None]
"""Returns this broker's points by series; None if it has none."""


class HistoryResource:
    """Reads the history of this broker and of the others.

    :param now_ms: the wall clock.
    :param subjects: the histories of this broker's topics, and those of its groups.
    """

    def __init__(
        self,
        broker_id: int,
        now_ms: Callable[[], int],
        history: History,
        subjects: tuple[SubjectHistories, SubjectHistories],
        published: PublishedMetadata,
        others: OtherBrokers,
    ) -> None:
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._history = history
        self._topics, self._groups = subjects
        self._published = published
        self._others = others

    def routes(self) -> Sequence[Route]:
        """Return the routes of the histories of brokers, topics and groups."""
        limit_text = f"each broker keeps data for its {SUBJECTS_MAX} most active"
        return (
            _route(PATH, self.of_brokers, "Data for charts of the last 6 hours.", SERIES),
            _route(
                TOPIC_PATH,
                self.of_topic,
                f"Data for charts of a topic's last 6 hours; {limit_text} topics.",
                TOPIC_SERIES,
                IN_TOPIC,
                {404: "The topic does not exist."},
            ),
            _route(
                GROUP_PATH,
                self.of_group,
                f"Data for charts of a group's last 6 hours; {limit_text} groups.",
                GROUP_SERIES,
                _IN_GROUP,
            ),
        )

    async def of_brokers(self, call: Call) -> JsonResponse:
        """``GET /v1/history``."""
        return await self._read(call, PATH, SERIES, self._history.read)

    async def of_topic(self, call: Call) -> JsonResponse:
        """``GET /v1/topics/{topic}/history``: the points of the leaders, which add up to those of the topic."""
        topic = call.path["topic"]
        if not call.forwarded:
            topic_of(await once_complete(self._published), topic)
        path = f"/v1/topics/{quote(topic, safe='')}/history"
        return await self._read(call, path, TOPIC_SERIES, partial(self._topics.read, topic))

    async def of_group(self, call: Call) -> JsonResponse:
        """``GET /v1/groups/{group}/history``: the points of its coordinators."""
        group = call.path["group"]
        path = f"/v1/groups/{quote(group, safe='')}/history"
        return await self._read(call, path, GROUP_SERIES, partial(self._groups.read, group))

    async def _read(self, call: Call, path: str, series: Series, read_local: ReadLocal) -> JsonResponse:
        now_ms = self._now_ms()
        names = _names(call.query["series"], series)
        span = _span(call, now_ms)

        async def read() -> dict[str, Any]:
            points = read_local(names, span)
            rows = [] if points is None else [{"broker_id": self._broker_id, "series": points}]
            return _document(now_ms, span, rows)

        query = {"series": ",".join(names), "from": span.from_ms, "to": span.from_ms + (span.count - 1) * span.step_ms}
        responses = await self._others.request_all(call, path, PEER_RESPONSE, read, query=query)
        rows = [
            row
            for document in responses.documents.values()
            for row in document["brokers"]
            # If another broker's clock is far off, its points are at other times.
            if (document["from_ms"], document["step_ms"]) == (span.from_ms, span.step_ms)
        ]
        return JsonResponse({**_document(now_ms, span, rows), "problems": list(responses.problems)})


def _route(
    path: str,
    handler: Callable[[Call], Awaitable[JsonResponse]],
    summary: str,
    series: Series,
    in_path: Parameter | None = None,
    problems: Mapping[int, str] | None = None,
) -> Route:
    names = {"type": "string", "minLength": 1, "maxLength": 600}
    texts = "; ".join(f"{name} ({unit}): {text}" for name, (unit, text) in series.items())
    return Route(
        "GET",
        path,
        handler,
        summary,
        response=RESPONSE,
        query=(
            *(() if in_path is None else (in_path,)),
            Parameter("series", names, f"Names separated by commas; all if absent. {texts}"),
            Parameter("from", _TIME, f"Start, in {_MEANING}.", default=-DEFAULT_MS),
            Parameter("to", _TIME, f"End, in {_MEANING}.", default=-1),
        ),
        problems=problems or {},
    )


def _document(at_ms: int, span: Span, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "at_ms": at_ms,
        "from_ms": span.from_ms,
        "step_ms": span.step_ms,
        "points": span.count,
        "brokers": rows,
        "problems": [],
    }


def _span(call: Call, now_ms: int) -> Span:
    from_ms, to_ms = (_absolute(call.query[name], now_ms) for name in ("from", "to"))
    to_ms = min(to_ms, now_ms)
    if from_ms > to_ms:
        detail = "from: the start is after the end of the range, or in the future"
        raise Problem(400, "INVALID_REQUEST", detail, what_to_do="Send an earlier time.")
    return span_of(from_ms, to_ms, now_ms)


def _names(text: str | None, series: Series) -> list[str]:
    names = list(series) if text is None else list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in series:
            advice = similar_name(name, series) or f"Series: {', '.join(series)}."
            raise Problem(400, "INVALID_REQUEST", f"series: unknown series {name[:SHOWN_MAX]!r}", what_to_do=advice)
    return names


def _absolute(given_ms: int, now_ms: int) -> int:
    return given_ms if given_ms >= 0 else max(now_ms + given_ms, 0)
