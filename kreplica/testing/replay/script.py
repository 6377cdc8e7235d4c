"""What a controller did, as its journal has it, beside what another does now, to the first difference."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kreplica.controller.journal.lines import Line
from kreplica.controller.journal.recorder import Entry
from kreplica.controller.journal.value_json import plain

PERFORMED_BY_THE_WORLD = ("op", "command", "timer", "channel")
"""Entries that something is made of, which has to be there before what follows from it at once."""


@dataclass(frozen=True, slots=True)
class Difference:
    """:param event: the number of the event that was being handled, or the last; 0 for none.
    :param expected: the entry of the journal; None where it has none more.
    :param actual: what happened in its place; None for nothing.
    """

    event: int
    expected: Line | None
    actual: Line | None


class Script:
    """Sink for the journal of the controller that repeats a run.

    :param lines: the journal of that run.
    :param told: called with each entry that is the same.
    :ivar last: the entry that was noted last.
    :ivar difference: the first; nothing is looked at after it.
    :ivar unformed: commands whose bodies nobody knows: they were sent by what came before.
    :ivar muted: whether entries are passed over.
    """

    def __init__(self, lines: Sequence[Line], told: Callable[[Line], None]) -> None:
        self._lines = lines
        self._told = told
        self._position = 0
        self.perform_nested: Callable[[], None] = lambda: None
        self.last: Entry = {}
        self.difference: Difference | None = None
        self.unformed: Collection[int] = ()
        self.muted = True
        self.event = 0

    @property
    def position(self) -> int:
        """How many entries were the same."""
        return self._position

    @property
    def next(self) -> Line | None:
        """The entry that is expected; None after the last, or after a difference."""
        if self.difference is not None or self._position >= len(self._lines):
            return None
        return self._lines[self._position]

    @property
    def nested(self) -> Line | None:
        """What is to reach the controller before it goes on; None where nothing is."""
        line = self.next
        return line if line is not None and line.get("nested") else None

    def note(self, entry: Entry, weight: int = 1) -> None:
        """The controller did or was told this."""
        expected = self.next
        self.last = entry
        if self.muted or expected is None:
            return
        actual: Line = json.loads(json.dumps(entry, default=plain))
        if self._compared(expected) != self._compared(actual):
            self.difference = Difference(self.event, expected, actual)
            return
        if expected.get("out") == "event":
            self.event = expected["number"]
        self._position += 1
        self._told(expected)
        if not any(name in entry for name in PERFORMED_BY_THE_WORLD):
            self.perform_nested()
        self.last = entry

    def did_nothing(self) -> None:
        """The controller does not go on by itself, and what is next does not reach it."""
        if self.next is not None:
            self.difference = Difference(self.event, self.next, None)

    def value(self, what: str, of: str | None, default: Any) -> Any:
        """What the controller reads at this point, or ``default``."""
        line = self.next
        if line is not None and line.get("read") == what and line.get("of") == of:
            return line["value"]
        return default

    def _compared(self, line: Line) -> Line:
        left_out = ["n", "s"]
        if line.get("in") == "sent" and line["command"] in self.unformed:
            left_out += ["bytes", "crc"]
        return {name: value for name, value in line.items() if name not in left_out}
