"""Text description of the first difference between a run and its replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import unified_diff
from typing import Any

from kreplica.controller.journal.lines import EntryFields
from kreplica.testing.replay.entry_text import EntryText
from kreplica.testing.replay.reading import JournalFile
from kreplica.testing.replay.script import Difference

DIFFERING_LINES_MAX = 40


def explain(difference: Difference, file: JournalFile, entry_text: EntryText) -> list[str]:
    """Describe a difference: event, time, entry of the journal, output of the replay, and their fields that differ."""
    return [
        f"{file.path}: event {difference.event}{_event_name(difference, file)} is the first that differs"
        f"{_time_text(difference, file, entry_text)}",
        "the journal has:",
        *_entry_lines(entry_text, difference.expected),
        "the replay has:",
        *_entry_lines(entry_text, difference.actual),
        *_differing_fields(difference),
    ]


def _event_name(difference: Difference, file: JournalFile) -> str:
    for line in file.lines:
        if line.get("out") == "event" and line["number"] == difference.event:
            return f" ({line['event'][0]})"
    return ""


def _time_text(difference: Difference, file: JournalFile, entry_text: EntryText) -> str:
    expected = difference.expected
    if expected is None or "n" not in expected:
        return ", at the end of the file"
    last_input = next((line for line in reversed(file.lines[: expected["n"]]) if "in" in line), None)
    return f", at entry {expected['n']}" + (f", {entry_text.time(last_input)}" if last_input is not None else "")


def _entry_lines(entry_text: EntryText, line: EntryFields | None) -> list[str]:
    if line is None:
        return ["  nothing"]
    lines = entry_text.lines(line) if "office" not in line else ["  the controller's state differs"]
    return [f"  {text.strip()}" for text in lines] or [f"  {json.dumps(line)[:200]}"]


def _differing_fields(difference: Difference) -> Iterator[str]:
    if difference.expected is None or difference.actual is None:
        return
    expected, actual = list(_rows(difference.expected)), list(_rows(difference.actual))
    rows = list(unified_diff(expected, actual, lineterm="", n=0))[2:]
    yield "they differ in:"
    yield from (f"  {row}" for row in rows[:DIFFERING_LINES_MAX] if not row.startswith("@@"))
    if len(rows) > DIFFERING_LINES_MAX:
        yield f"  and {len(rows) - DIFFERING_LINES_MAX} more lines"


def _rows(value: Any, name: str = "") -> Iterator[str]:
    """Split a value into text lines that are compared one by one."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in ("n", "s"):
                yield from _rows(item, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and value and isinstance(value[0], list):
        for item in value:
            yield f"{name}: {json.dumps(item)}"
    else:
        yield f"{name}: {json.dumps(value)}"
