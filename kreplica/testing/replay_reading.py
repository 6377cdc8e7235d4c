"""Journals of controllers, read from disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from kreplica.controller.journal_lines import FORMAT, Line, decode_line, lines_of
from kreplica.errors import KreplicaError
from kreplica.runtime.disk import Disk

HEAD_FIELDS = {"journal", "kreplica", "broker", "wall_clock_ms", "s", "config", "state"}


class JournalUnreadable(KreplicaError):
    """Not a journal, or one of another format: says which file, which line, and why."""


@dataclass(frozen=True, slots=True)
class JournalFile:
    """:param note: what is missing at its end; empty where nothing is."""

    path: str
    head: Line
    lines: Sequence[Line]
    note: str = ""

    @property
    def state(self) -> dict[str, Any] | None:
        """Where the controller stood; None where the file begins with it."""
        state: dict[str, Any] | None = self.head["state"]
        return state

    def goes_on_with(self, other: JournalFile) -> bool:
        """Whether it was begun at the end of that one, by the same controller."""
        number, broker_id = _number(self.path), self.head["broker"]
        return self.state is not None and other.head["broker"] == broker_id and _number(other.path) == number - 1


def _number(path: str) -> int:
    digits = PurePath(path).stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def read_journals(disk: Disk, path: str, left_out: Callable[[str], None] = lambda _: None) -> list[JournalFile]:
    """A journal's file, or all of a directory, in the order in which they were written.

    :param left_out: told of each file of a directory that cannot be read, and why: a process may have been killed, or
        the power lost, as it began.
    :raise JournalUnreadable: where nothing can be read.
    """
    if not disk.is_directory(path):
        if not disk.exists(path):
            raise JournalUnreadable(f"{path}: there is no such file")
        return [read_journal(path, disk.read_file(path))]
    names = [name for name in disk.list_directory(path) if PurePath(name).match("controller-journal-*.jsonl")]
    found: list[JournalFile] = []
    why = f"{path}: holds no controller-journal-*.jsonl"
    for name in names:
        try:
            found.append(read_journal(f"{path}/{name}", disk.read_file(f"{path}/{name}")))
        except JournalUnreadable as error:
            why = str(error)
            left_out(why)
    if not found:
        raise JournalUnreadable(why)
    return found


def read_journal(path: str, data: bytes) -> JournalFile:
    """What is in one file.  From the first line on that cannot be read (it was being written when the process was
    killed or the power lost) all is left out, and ``note`` says so.

    :raise JournalUnreadable: where that is the first line.
    """
    found: list[Line] = []
    note = ""
    raw = list(lines_of(data))
    for number, line in enumerate(raw):
        try:
            entry = decode_line(line)
            if entry["n"] != number:
                raise ValueError(f"entry {entry['n']} stands where {number} should")
        except ValueError as error:
            note = f"{path}: line {number + 1} of {len(raw)} cannot be read, the end is left out: {error}"
            break
        found.append(entry)
    if not found:
        raise JournalUnreadable(note or f"{path}: is empty")
    head = found[0]
    if "journal" in head and head["journal"] != FORMAT:
        raise JournalUnreadable(f"{path}: has format {head['journal']}, and this version reads {FORMAT}")
    if not head.keys() >= HEAD_FIELDS:
        raise JournalUnreadable(f"{path}: is no journal of a controller")
    return JournalFile(path, head, found[1:], note)
