"""Reads journals of controllers from disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from kreplica.controller.journal.lines import FORMAT, EntryFields, decode_sized, lines_of
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
"""Maximum size of one file, and of its uncompressed lines; a whole journal has 64 MiB by default."""


class JournalUnreadable(KreplicaError):
    """The file is not a journal or has another format; the message names the file, the line and the reason."""


@dataclass(frozen=True, slots=True)
class JournalFile:
    """One file of a journal.

    :param note: description of an unreadable end that was skipped; empty if the file is complete.
    """

    path: str
    head: EntryFields
    lines: Sequence[EntryFields]
    note: str = ""

    @property
    def state(self) -> dict[str, Any] | None:
        """Snapshot of the controller's state; None if the controller starts with this file."""
        state: dict[str, Any] | None = self.head["state"]
        return state

    def continues(self, other: JournalFile) -> bool:
        """Return True if the same controller started this file directly after the other file."""
        number, broker_id = _number(self.path), self.head["broker"]
        return self.state is not None and other.head["broker"] == broker_id and _number(other.path) == number - 1


def _number(path: str) -> int:
    digits = PurePath(path).stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def read_journals(disk: Disk, path: str, on_skipped: Callable[[str], None] = lambda _: None) -> list[JournalFile]:
    """Read one file of a journal, or all files of a directory in the order in which they were written.

    :param on_skipped: called with the reason for each unreadable file of a directory; a process may have been killed
        while it was starting the file.
    :raise JournalUnreadable: no file can be read.
    """
    if not disk.is_directory(path):
        if not disk.exists(path):
            raise JournalUnreadable(f"{path}: file not found")
        return [read_journal(path, _data_of(disk, path))]
    names = [name for name in disk.list_directory(path) if PurePath(name).match("controller-journal-*.jsonl")]
    files: list[JournalFile] = []
    reason = f"{path}: no controller-journal-*.jsonl found"
    for name in names:
        try:
            files.append(read_journal(f"{path}/{name}", _data_of(disk, f"{path}/{name}")))
        except JournalUnreadable as error:
            reason = str(error)
            on_skipped(reason)
    if not files:
        raise JournalUnreadable(reason)
    return files


def _data_of(disk: Disk, path: str) -> bytes:
    try:
        file = disk.open(path)
        try:
            size = file.size()
            if size > FILE_BYTES_MAX:
                raise JournalUnreadable(f"{path}: {size:,} bytes, more than the limit of {FILE_BYTES_MAX:,}")
            return file.read_at(0, size)
        finally:
            file.close()
    except OSError as error:
        raise JournalUnreadable(f"{path}: cannot be read: {error.strerror or error}") from None


def read_journal(path: str, data: bytes) -> JournalFile:
    """Parse one file.

    The first unreadable line, which was incomplete when the process ended, and everything after it are skipped with a
    note.

    :raise JournalUnreadable: the first line is unreadable.
    """
    entries: list[EntryFields] = []
    note = ""
    raw = list(lines_of(data))
    unpacked_bytes = 0
    for number, line in enumerate(raw):
        try:
            entry, size = decode_sized(line)
            unpacked_bytes += size
            if unpacked_bytes > FILE_BYTES_MAX:
                raise ValueError(f"the uncompressed lines are larger than {FILE_BYTES_MAX:,} bytes")
            if entry["n"] != number:
                raise ValueError(f"entry number {entry['n']} instead of {number}")
        except ValueError as error:
            note = f"{path}: line {number + 1} of {len(raw)} cannot be read; the rest is skipped: {error}"
            break
        entries.append(entry)
    if not entries:
        raise JournalUnreadable(note or f"{path}: is empty")
    head = entries[0]
    if "journal" in head and head["journal"] != FORMAT:
        raise JournalUnreadable(f"{path}: format {str(head['journal'])[:40]}, but this version reads {FORMAT}")
    for name, types in HEAD_FIELDS.items():
        if name not in head or type(head[name]) not in types:
            raise JournalUnreadable(f"{path}: not a controller's journal: field {name} of line 1 is missing or invalid")
    return JournalFile(path, head, entries[1:], note)
