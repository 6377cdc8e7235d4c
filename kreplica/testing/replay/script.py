"""Compares a controller's entries with those of a journal, up to the first difference."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kreplica.controller.journal.lines import EntryFields
from kreplica.controller.journal.recorder import Entry
from kreplica.controller.journal.value_json import plain

CREATING_ENTRIES = ("op", "command", "timer", "channel")
"""Entries that create an object; it must exist before the nested inputs are performed."""


@dataclass(frozen=True, slots=True)
class Difference:
    """First difference between a journal and its replay.

    :param event: number of the current or last event; 0 before the first.
    :param expected: entry of the journal; None at its end.
    :param actual: entry of the replay; None if the controller did nothing.
    """

    event: int
    expected: EntryFields | None
    actual: EntryFields | None


class Script:
    """Journal sink of the controller that repeats a run.

    :param lines: journal of the recorded run.
    :param on_match: called with each equal entry.
    :ivar last: the last entry of the repeated run.
    :ivar difference: the first difference; later entries are not compared.
    :ivar unknown_bodies: commands from before the journal's start, whose bodies are unknown.
    :ivar muted: true to ignore entries.
    """

    def __init__(self, lines: Sequence[EntryFields], on_match: Callable[[EntryFields], None]) -> None:
        self._lines = lines
        self._on_match = on_match
        self._position = 0
        self.perform_nested: Callable[[], None] = lambda: None
        self.last: Entry = {}
        self.difference: Difference | None = None
        self.unknown_bodies: Collection[int] = ()
        self.muted = True
        self.event = 0

    @property
    def position(self) -> int:
        """Number of equal entries."""
        return self._position

    @property
    def next(self) -> EntryFields | None:
        """The next expected entry; None after the last, or after a difference."""
        if self.difference is not None or self._position >= len(self._lines):
            return None
        return self._lines[self._position]

    @property
    def nested(self) -> EntryFields | None:
        """The next entry, if it is an input that arrives while the controller is still running; otherwise None."""
        line = self.next
        return line if line is not None and line.get("nested") else None

    def note(self, entry: Entry, weight: int = 1) -> None:
        """Compare an input or output of the controller with the next entry."""
        expected = self.next
        self.last = entry
        if self.muted or expected is None:
            return
        actual: EntryFields = json.loads(json.dumps(entry, default=plain))
        if self._compared(expected) != self._compared(actual):
            self.difference = Difference(self.event, expected, actual)
            return
        if expected.get("out") == "event":
            self.event = expected["number"]
        self._position += 1
        self._on_match(expected)
        if not any(name in entry for name in CREATING_ENTRIES):
            self.perform_nested()
        self.last = entry

    def no_output(self) -> None:
        """Record a difference: the controller is idle, but the journal has another entry."""
        if self.next is not None:
            self.difference = Difference(self.event, self.next, None)

    def value(self, name: str, key: str | None, default: Any) -> Any:
        """Return the recorded value if the next entry is the controller's read of it, otherwise ``default``."""
        line = self.next
        if line is not None and line.get("read") == name and line.get("of") == key:
            return line["value"]
        return default

    def _compared(self, line: EntryFields) -> EntryFields:
        ignored = ["n", "s"]
        if line.get("in") == "sent" and line["command"] in self.unknown_bodies:
            ignored += ["bytes", "crc"]
        return {name: value for name, value in line.items() if name not in ignored}
