"""``/v1/history``: values of charts over the last hours, from all brokers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kreplica.admin.http.api import Call, JsonResponse, Parameter, Route
from kreplica.admin.http.problems import SHOWN_MAX, Problem, similar_name
from kreplica.admin.http.schemas import BROKER_ID, COUNT, STRING, TIME_MS, listing, record
from kreplica.admin.load.history import COARSE_POINTS, FINE_MS, FINE_POINTS, SERIES, History, Span, span_of
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

_TIME = {"type": "integer", "minimum": -(2**53), "maximum": 2**53}
_MEANING = "milliseconds since 1970; a negative value is relative to now"


class HistoryResource:
    """Reads the history of this broker and of the others.

    :param now_ms: the wall clock.
    """

    def __init__(self, broker_id: int, now_ms: Callable[[], int], history: History, others: OtherBrokers) -> None:
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._history = history
        self._others = others

    def routes(self) -> Sequence[Route]:
        """Return the route of the history."""
        names = {"type": "string", "minLength": 1, "maxLength": 600}
        texts = "; ".join(f"{name} ({unit}): {text}" for name, (unit, text) in SERIES.items())
        return (
            Route(
                "GET",
                PATH,
                self.read,
                "Values of charts over the last 6 hours.",
                response=RESPONSE,
                query=(
                    Parameter("series", names, f"Names separated by commas; all if absent. {texts}"),
                    Parameter("from", _TIME, f"Start, in {_MEANING}.", default=-DEFAULT_MS),
                    Parameter("to", _TIME, f"End, in {_MEANING}.", default=-1),
                ),
            ),
        )

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/history``."""
        now_ms = self._now_ms()
        names = _names(call.query["series"])
        from_ms, to_ms = (_absolute(call.query[name], now_ms) for name in ("from", "to"))
        to_ms = min(to_ms, now_ms)
        if from_ms > to_ms:
            detail = "from: the start is later than the end of the range, or than now"
            raise Problem(400, "INVALID_REQUEST", detail, what_to_do="Send an earlier time.")
        span = span_of(from_ms, to_ms, now_ms)

        async def read_local() -> dict[str, Any]:
            return _document(now_ms, span, [{"broker_id": self._broker_id, "series": self._history.read(names, span)}])

        query = {"series": ",".join(names), "from": span.from_ms, "to": span.from_ms + (span.count - 1) * span.step_ms}
        responses = await self._others.request_all(call, PATH, PEER_RESPONSE, read_local, query=query)
        rows = [
            row
            for document in responses.documents.values()
            for row in document["brokers"]
            # The clock of another broker may be so wrong that it chose other points.
            if (document["from_ms"], document["step_ms"]) == (span.from_ms, span.step_ms)
        ]
        return JsonResponse({**_document(now_ms, span, rows), "problems": list(responses.problems)})


def _document(at_ms: int, span: Span, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "at_ms": at_ms,
        "from_ms": span.from_ms,
        "step_ms": span.step_ms,
        "points": span.count,
        "brokers": rows,
        "problems": [],
    }


def _names(text: str | None) -> list[str]:
    names = list(SERIES) if text is None else list(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in SERIES:
            advice = similar_name(name, SERIES) or f"Series: {', '.join(SERIES)}."
            raise Problem(400, "INVALID_REQUEST", f"series: unknown series {name[:SHOWN_MAX]!r}", what_to_do=advice)
    return names


def _absolute(given_ms: int, now_ms: int) -> int:
    return given_ms if given_ms >= 0 else max(now_ms + given_ms, 0)
