"""Journals of controllers, read from disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from kreplica.controller.journal_lines import FORMAT, Line, decode_line, lines_of
from kreplica.errors import KreplicaError
from kreplica.runtime.disk import Disk


class JournalUnreadable(KreplicaError):
    """Not a journal, or one of another format: says which file, which line, and why."""


@dataclass(frozen=True, slots=True)
class JournalFile:
    """:param note: what is missing at its end; empty where nothing is.
    """

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


def read_journals(disk: Disk, path: str) -> list[JournalFile]:
    """A journal's file, or all of a directory, in the order in which they were written.

    A file without a whole head (its process was killed as it began) is left out of a directory.

    :raise JournalUnreadable: where there is none, or something else.
    """
    if not disk.is_directory(path):
        if not disk.exists(path):
            raise JournalUnreadable(f"{path}: there is no such file")
        return [read_journal(path, disk.read_file(path))]
    names = [name for name in disk.list_directory(path) if PurePath(name).match("controller-journal-*.jsonl")]
    if not names:
        raise JournalUnreadable(f"{path}: holds no controller-journal-*.jsonl")
    whole = [(f"{path}/{name}", data) for name in names if b"\n" in (data := disk.read_file(f"{path}/{name}"))]
    return [read_journal(each, data) for each, data in whole]


def read_journal(path: str, data: bytes) -> JournalFile:
    """What is in one file.  Its last line may be torn; then it is left out, and ``note`` says so.

    :raise JournalUnreadable: where more than that is missing.
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
            if number == 0 or number < len(raw) - 1:
                raise JournalUnreadable(f"{path}: line {number + 1} cannot be read: {error}") from None
            note = f"{path}: its last line, {number + 1}, is torn, and left out: {error}"
            break
        found.append(entry)
    head = found[0] if found else {}
    if "journal" not in head:
        raise JournalUnreadable(f"{path}: is no journal of a controller")
    if head["journal"] != FORMAT:
        raise JournalUnreadable(f"{path}: has format {head['journal']}, and this version reads {FORMAT}")
    return JournalFile(path, head, found[1:], note)
