"""Incremental parser of server-sent events (``text/event-stream``), without I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kreplica.errors import KreplicaError

EVENT_SIZE_MAX = 32 * 1024 * 1024


class EventTooLong(KreplicaError):
    """An event is larger than any event of the admin API; the data is probably not an event stream."""


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """Event of a stream.

    :param data: lines of data, joined by newlines.
    :param event_id: latest ID in the stream; None before the first one.
    """

    name: str
    data: str
    event_id: str | None


class EventParser:
    """Parses chunks of any size into events; comments are skipped."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = "message"
        self._data: list[str] = []
        self._event_id: str | None = None

    def feed(self, data: bytes) -> Iterator[ReceivedEvent]:
        """Parse a chunk and yield the events that it completes.

        :raise EventTooLong: a line or event is longer than ``EVENT_SIZE_MAX``.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) + sum(map(len, self._data)) > EVENT_SIZE_MAX:
            raise EventTooLong(f"an event is larger than {EVENT_SIZE_MAX:,} bytes")
        for line in lines:
            event = self._parse_line(line.removesuffix(b"\r").decode(errors="replace"))
            if event is not None:
                yield event

    def _parse_line(self, line: str) -> ReceivedEvent | None:
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
