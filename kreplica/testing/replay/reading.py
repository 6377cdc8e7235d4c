"""Journals of controllers, read from disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from kreplica.controller.journal.lines import FORMAT, Line, decode_sized, lines_of
from kreplica.errors import KreplicaError
from kreplica.runtime.disk import Disk

HEAD_FIELDS: Mapping[str, tuple[type, ...]] = {
    "journal": (int,),
    "kreplica": (str,),
    "broker": (int,),
    "wall_clock_ms": (int,),
    "s": (int, float),
    "config": (dict,),
    "state": (dict, type(None)),
}

FILE_BYTES_MAX = 256 * 2**20
"""Size of one file, and of its lines when they are unpacked; a whole journal has 64 MiB by default."""


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
        return [read_journal(path, _data_of(disk, path))]
    names = [name for name in disk.list_directory(path) if PurePath(name).match("controller-journal-*.jsonl")]
    found: list[JournalFile] = []
    why = f"{path}: holds no controller-journal-*.jsonl"
    for name in names:
        try:
            found.append(read_journal(f"{path}/{name}", _data_of(disk, f"{path}/{name}")))
        except JournalUnreadable as error:
            why = str(error)
            left_out(why)
    if not found:
        raise JournalUnreadable(why)
    return found


def _data_of(disk: Disk, path: str) -> bytes:
    try:
        file = disk.open(path)
        try:
            size = file.size()
            if size > FILE_BYTES_MAX:
                raise JournalUnreadable(f"{path}: has {size:,} bytes, and at most {FILE_BYTES_MAX:,} are read")
            return file.read_at(0, size)
        finally:
            file.close()
    except OSError as error:
        raise JournalUnreadable(f"{path}: cannot be read: {error.strerror or error}") from None


def read_journal(path: str, data: bytes) -> JournalFile:
    """What is in one file.  From the first line on that cannot be read (it was being written when the process was
    killed or the power lost) all is left out, and ``note`` says so.

    :raise JournalUnreadable: where that is the first line.
    """
    found: list[Line] = []
    note = ""
    raw = list(lines_of(data))
    unpacked_bytes = 0
    for number, line in enumerate(raw):
        try:
            entry, size = decode_sized(line)
            unpacked_bytes += size
            if unpacked_bytes > FILE_BYTES_MAX:
                raise ValueError(f"the lines so far have more than {FILE_BYTES_MAX:,} bytes when unpacked")
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
        raise JournalUnreadable(f"{path}: has format {str(head['journal'])[:40]}, and this version reads {FORMAT}")
    for name, types in HEAD_FIELDS.items():
        if name not in head or type(head[name]) not in types:
            raise JournalUnreadable(f"{path}: is no journal of a controller: line 1 has no {name} as journals have it")
    return JournalFile(path, head, found[1:], note)
