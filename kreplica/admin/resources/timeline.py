"""``/v1/timeline`` and ``/v1/events``: past and new events of the cluster, merged from all brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kreplica.admin.cluster_state.merged_timeline import (
    ID_PATTERN,
    AuditEventSource,
    Document,
    documents_of,
    entry_schema,
    merged,
)
from kreplica.admin.cluster_state.timeline_feed import TimelineFeed
from kreplica.admin.http.api import Call, EventStream, JsonResponse, Parameter, Route, Schema
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import STRING, listing, one_of, record
from kreplica.admin.peers.forwarding import OtherBrokers
from kreplica.admin.peers.responses import PeerResponseValidator
from kreplica.runtime import Reactor

PATH = "/v1/timeline"
LIMIT_MAX = 1000

_ID = {"type": "string", "pattern": ID_PATTERN}
LIMIT = Parameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX}, "Maximum number of entries.", default=100
)
BEFORE = Parameter("before", _ID, "Only entries older than the one with this ID.")
SUBJECT = Parameter("subject", {"type": "string", "maxLength": 300}, "Only entries about this subject: `broker 3`.")
SINCE = Parameter("since", _ID, "Only entries newer than the one with this ID.")


_PROBLEMS = {**listing(STRING), "description": "A sentence for each broker that did not respond."}


def response_schema(kinds: Mapping[str, str]) -> Schema:
    """Return the schema of the response of ``/v1/timeline``.

    :param kinds: the kinds of entries with their descriptions.
    """
    return record({"entries": listing(entry_schema(kinds)), "problems": _PROBLEMS}, title="Timeline")


PEER_RESPONSE = PeerResponseValidator(response_schema({}))
"""Entries of any kind."""


class Timeline:
    """The timeline of the cluster.

    :param audit_events: the events of this broker.
    :param kinds: the kinds of entries with their descriptions.
    """

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        audit_events: AuditEventSource,
        kinds: Mapping[str, str],
        others: OtherBrokers,
    ) -> None:
        self._broker_id = broker_id
        self._audit_events = audit_events
        self._kinds = kinds
        self._others = others
        self._feed = TimelineFeed(reactor, self._new_entries)

    def routes(self) -> Sequence[Route]:
        """Return the routes of past and new events."""
        kind = Parameter("kind", one_of(*self._kinds), "Only entries of this kind.")
        return (
            Route(
                "GET",
                PATH,
                self.read,
                "Events of the cluster, newest first.",
                response=response_schema(self._kinds),
                query=(LIMIT, BEFORE, SINCE, kind, SUBJECT),
            ),
            Route("GET", "/v1/events", self.events, "New events, as stream events `timeline`.", streams=True),
        )

    async def read(self, call: Call) -> JsonResponse:
        """``GET /v1/timeline``."""

        async def read_local() -> Document:
            return {"entries": documents_of(self._audit_events, **call.query)}

        responses = await self._others.request_all(call, PATH, PEER_RESPONSE, read_local, query=call.query)
        entries = merged(entry for document in responses.documents.values() for entry in document["entries"])
        return JsonResponse({"entries": entries[: call.query["limit"]], "problems": list(responses.problems)})

    async def events(self, call: Call) -> EventStream:
        """``GET /v1/events``."""
        if call.last_event_id is not None and not _is_id(call.last_event_id):
            detail = "Last-Event-ID is not the ID of an entry"
            raise Problem(400, "INVALID_REQUEST", detail, what_to_do="Send the last event's ID, or omit the header.")
        return EventStream(self._feed.events(call))

    async def _new_entries(self, call: Call, since: Mapping[int, str]) -> Iterable[Document]:
        async def read_local() -> Document:
            return {"entries": documents_of(self._audit_events, limit=LIMIT_MAX, since=since.get(self._broker_id))}

        # Each listener is authorized separately, so the one whose call is used must not decide for the others.
        call = replace(call, caller=replace(call.caller, is_super=True))
        each = {broker: {"since": entry_id} for broker, entry_id in since.items()}
        query = {"limit": LIMIT_MAX}
        responses = await self._others.request_all(call, PATH, PEER_RESPONSE, read_local, query=query, each=each)
        return [entry for document in responses.documents.values() for entry in document["entries"]]


def _is_id(text: str) -> bool:
    parts = text.split("-")
    return len(parts) == 3 and all(part.isascii() and part.isdecimal() and len(part) <= 15 for part in parts)
