"""Merges the audit events of all brokers into one timeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from kreplica.admin.http.schemas import BROKER_ID, COUNT, STRING, TIME_MS, nullable, one_of, record

Key = tuple[int, ...]
Document = dict[str, Any]

ID_PATTERN = "^[0-9]{1,15}-[0-9]{1,10}-[0-9]{1,10}$"


class TimelineEntry(Protocol):
    """An event of the cluster; see ``kreplica.controller.history.audit_events.Entry``."""

    @property
    def entry_id(self) -> str: ...

    @property
    def at_ms(self) -> int: ...

    @property
    def broker_id(self) -> int: ...

    @property
    def controller_epoch(self) -> int | None: ...

    @property
    def kind(self) -> str: ...

    @property
    def subject(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def details(self) -> Mapping[str, Any]: ...


class AuditEventSource(Protocol):
    """The events that one broker keeps."""

    def newest(self) -> Iterator[TimelineEntry]:
        """Iterate over the entries, newest first."""


def entry_schema(kinds: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the JSON schema of an entry.

    :param kinds: the kinds of entries with their descriptions.
    """
    kinds_text = "; ".join(f"`{kind}`: {text}" for kind, text in kinds.items())
    return record(
        {
            "id": {**STRING, "pattern": ID_PATTERN, "description": "Sortable by time across all brokers."},
            "at_ms": TIME_MS,
            "broker_id": {**BROKER_ID, "description": "The broker that recorded the entry; `at_ms` is from its clock."},
            "controller_epoch": {**nullable(COUNT), "description": "Epoch of the recording controller, or null."},
            "kind": {**one_of(*kinds), "description": f"{kinds_text}."},
            "subject": {**STRING, "description": "`broker 3`, `topic orders`, ...; empty for several subjects."},
            "text": STRING,
            "details": {"type": "object"},
        },
        title="TimelineEntry",
    )


def key_of(entry_id: str) -> Key:
    """Return the sort key of an entry ID, comparable between brokers."""
    return tuple(int(part) for part in entry_id.split("-"))


def documents_of(
    audit_events: AuditEventSource,
    *,
    limit: int,
    before: str | None = None,
    since: str | None = None,
    kind: str | None = None,
    subject: str | None = None,
) -> list[Document]:
    """Return the newest entries of one broker, newest first.

    :param before: only entries older than this one, from any broker.
    :param since: only newer entries.
    """
    upper, lower = (None if each is None else key_of(each) for each in (before, since))
    found: list[Document] = []
    for entry in audit_events.newest():
        key = key_of(entry.entry_id)
        if lower is not None and key <= lower:
            break
        matches = (kind is None or entry.kind == kind) and (subject is None or entry.subject == subject)
        if matches and (upper is None or key < upper):
            found.append(_document(entry))
            if len(found) == limit:
                break
    return found


def merged(documents: Iterable[Document]) -> list[Document]:
    """Merge entries of several brokers, newest first, without duplicates."""
    by_id = {document["id"]: document for document in documents}
    return sorted(by_id.values(), key=lambda document: key_of(document["id"]), reverse=True)


def _document(entry: TimelineEntry) -> Document:
    return {
        "id": entry.entry_id,
        "at_ms": entry.at_ms,
        "broker_id": entry.broker_id,
        "controller_epoch": entry.controller_epoch,
        "kind": entry.kind,
        "subject": entry.subject,
        "text": entry.text,
        "details": dict(entry.details),
    }
