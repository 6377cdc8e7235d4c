"""Server-sent events (``text/event-stream``), cut out of bytes as they come; nothing here touches a socket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kreplica.errors import KreplicaError

EVENT_SIZE_MAX = 32 * 1024 * 1024


class EventTooLong(KreplicaError):
    """What comes is no stream of events, or one of them is larger than any that the admin API sends."""


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """:param data: as text, lines joined.

    :param event_id: the last one that the stream told; None where it told none.
    """

    name: str
    data: str
    event_id: str | None


class EventParser:
    """Fed with bytes cut anywhere, it gives whole events; comments are skipped."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = "message"
        self._data: list[str] = []
        self._event_id: str | None = None

    def feed(self, data: bytes) -> Iterator[ReceivedEvent]:
        """:raise EventTooLong: a single line or event is beyond ``EVENT_SIZE_MAX``."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) + sum(map(len, self._data)) > EVENT_SIZE_MAX:
            raise EventTooLong(f"an event of more than {EVENT_SIZE_MAX:,} bytes")
        for line in lines:
            event = self._take(line.removesuffix(b"\r").decode(errors="replace"))
            if event is not None:
                yield event

    def _take(self, line: str) -> ReceivedEvent | None:
        if not line:
            name, data = self._name, self._data
            self._name, self._data = "message", []
            return ReceivedEvent(name, "\n".join(data), self._event_id) if data else None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "id" and "\0" not in value:
            self._event_id = value
        return None
