"""The structure of an explanation and its JSON schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kreplica.admin.http.schemas import BROKER_ID, COUNT, STRING, TIME_MS, listing, nullable, one_of, record

Document = dict[str, Any]

DECIDED = record(
    {
        "at_ms": {**TIME_MS, "description": "When the deciding broker noticed the event, according to its own clock."},
        "broker_id": {**nullable(BROKER_ID), "description": "The controller or leader that decided; null if unknown."},
        "controller_epoch": nullable(COUNT),
        "event": {**nullable(STRING), "description": "The event that caused the decision."},
        "change": STRING,
        "leader_epoch": nullable(COUNT),
        "told": {**listing(BROKER_ID), "description": "The brokers that were notified."},
        "unanswered": {**listing(BROKER_ID), "description": "The notified brokers that have not responded yet."},
    },
    title="Decision",
)

ADVICE = record(
    {
        "text": STRING,
        "request": record(
            {
                "method": one_of("GET", "POST", "PUT", "PATCH", "DELETE"),
                "path": STRING,
                "body": {"description": "The JSON body; absent if the request has none."},
            },
            optional=("body",),
            description="A complete request of this API.",
        ),
    },
    title="Advice",
    optional=("request",),
)

WHY = record(
    {
        "subject": STRING,
        "state": STRING,
        "summary": STRING,
        "decided": {**listing(DECIDED), "description": "Newest first."},
        "waits_for": listing(STRING),
        "you_can": listing(ADVICE),
        "facts": {"type": "object", "description": "The facts behind the explanation."},
        "problems": {**listing(STRING), "description": "Facts that could not be read, with the reason."},
    },
    title="Why",
)


@dataclass(frozen=True, slots=True)
class Advice:
    """A possible action of an operator.

    :param request: ``(method, path)`` or ``(method, path, body)`` of this API; None for an action outside the API.
    """

    text: str
    request: tuple[Any, ...] | None = None

    def document(self) -> Document:
        if self.request is None:
            return {"text": self.text}
        names = ("method", "path", "body")
        return {"text": self.text, "request": dict(zip(names, self.request, strict=False))}


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation; see ``WHY``.

    :param decided: documents of decisions, newest first.
    """

    subject: str
    state: str
    summary: str
    waits_for: Sequence[str] = ()
    you_can: Sequence[Advice] = ()
    decided: Sequence[Document] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[str] = ()

    def document(self) -> Document:
        return {
            "subject": self.subject,
            "state": self.state,
            "summary": self.summary,
            "decided": list(self.decided),
            "waits_for": list(self.waits_for),
            "you_can": [advice.document() for advice in self.you_can],
            "facts": dict(self.facts),
            "problems": list(self.problems),
        }
