"""Journal files on disk: bounded in size by removing the oldest, and written without blocking the controller.

Entries are collected briefly; then a thread of ``Offload`` encodes and appends them.  Nothing is synced: the written
part survives the death of the process, but a power failure loses the last lines.  A failed write (for example on a full
disk) leaves a gap and logs one line, and a new file is tried every ``RETRY_SECONDS``.  The journal ends if its size
limit is too small for one file, if the disk is too slow, or after an unexpected error.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.controller.journal.lines import encode_line
from kreplica.controller.journal.recorder import Entry
from kreplica.runtime import Runtime
from kreplica.runtime.disk import File

log = Logger()

GATHER_SECONDS = 0.2
"""Time for which entries are collected before they are written; a killed process loses these entries."""

WEIGHT_MAX = 500_000
"""Maximum number of znodes, partitions and entries waiting to be written: some 100 MB."""

RETRY_SECONDS = 60.0
"""Delay between a failed write and the next attempt."""

FILE_COUNT = 4
"""Minimum number of files of a full journal, so that the oldest can be removed."""


class JournalSettings(NamedTuple):
    """Directory and size limit of a broker's journal.

    :param directory: directory of the journal files; other files in it are ignored.
    :param bytes_max: size limit of all files together.
    """

    directory: str
    broker_id: int
    bytes_max: int


class JournalTooSmall(Exception):
    """A single file exceeds the size limit of the whole journal."""


class _NewFile(NamedTuple):
    """Marker of a new file's start among the waiting entries."""

    head: Entry


def file_name(broker_id: int, number: int) -> str:
    """Return the name of a journal file; later processes of a broker continue the numbering."""
    return f"{prefix(broker_id)}{number:08d}.jsonl"


def prefix(broker_id: int) -> str:
    return f"controller-journal-{broker_id}-"


class JournalFiles:
    """Writes the entries of one journal.  No file or timer exists before the first entry.

    :param first_head: returns the header of the first file.
    :ivar is_due: True if a new file should start, because the current one is full or a failed write must be retried.
    :ivar became_due: called when ``is_due`` becomes True; never during a call to the controller.
    :ivar entries_count: number of entries so far.
    """

    def __init__(self, runtime: Runtime, settings: JournalSettings, first_head: Callable[[], Entry]) -> None:
        self._runtime = runtime
        self._first_head: Callable[[], Entry] | None = first_head
        self._files = _FileWriter(runtime, settings)
        self._waiting: list[Entry | _NewFile] = []
        self._weight = 0
        self._timer: IDelayedCall | None = None
        self._writing: Deferred[None] | None = None
        self._ended = False
        self._is_full = False
        self._retry_at_s: float | None = None
        """Time of the next attempt after a failed write; entries are dropped until then."""
        self._gap_logged = False
        self.became_due: Callable[[], None] = lambda: None
        self.entries_count = 0

    @property
    def is_due(self) -> bool:
        retry_at_s = self._retry_at_s
        return self._is_full if retry_at_s is None else self._runtime.reactor.seconds() >= retry_at_s

    def begin(self, head: Entry) -> None:
        """Start a new file for the following entries."""
        self._is_full = False
        self._retry_at_s = None
        if not self._ended:
            self._add(_NewFile(head), 1)

    def note(self, entry: Entry, weight: int = 1) -> None:
        if self._ended:
            return
        self.entries_count += 1
        if self._first_head is not None:
            make, self._first_head = self._first_head, None
            self.begin(make())
        if self._retry_at_s is None:
            self._add(entry, weight)

    def _add(self, entry: Entry | _NewFile, weight: int) -> None:
        self._waiting.append(entry)
        self._weight += weight
        if self._weight > WEIGHT_MAX:
            self.end("the disk is too slow for the number of entries")
        elif self._timer is None and self._writing is None:
            self._timer = self._runtime.reactor.callLater(GATHER_SECONDS, self._write)

    def _write(self) -> None:
        self._timer = None
        waiting, self._waiting, self._weight = self._waiting, [], 0
        written = self._runtime.offload.run(self._files.write, waiting)
        self._writing = written.addCallbacks(self._written, self._failed)
        if written.called:
            self._writing = None

    def _written(self, is_full: bool) -> None:
        self._writing = None
        if self._gap_logged:
            self._gap_logged = False
            log.info("the controller's journal continues")
        self._is_full = is_full and not self._ended and not any(isinstance(each, _NewFile) for each in self._waiting)
        if self._waiting and not self._ended:
            self._timer = self._runtime.reactor.callLater(GATHER_SECONDS, self._write)
        if self.is_due:
            self.became_due()

    def _failed(self, failure: Failure) -> None:
        self._writing = None
        if isinstance(failure.value, OSError) and not self._ended:
            self._leave_gap(failure.getErrorMessage())
        else:
            self.end(failure.getErrorMessage())

    def _leave_gap(self, reason: str) -> None:
        self._waiting, self._weight, self._is_full = [], 0, False
        self._retry_at_s = self._runtime.reactor.seconds() + RETRY_SECONDS
        if not self._gap_logged:
            self._gap_logged = True
            log.error(
                "the controller's journal has a gap from here on; a new file is tried every {seconds:g} s: {reason}",
                seconds=RETRY_SECONDS,
                reason=reason,
            )

    def end(self, reason: str) -> None:
        """Stop recording permanently; files already written are kept."""
        if not self._ended:
            self._ended = True
            log.error("the controller's journal ends here: {reason}", reason=reason)
        self._waiting, self._weight, self._is_full, self._retry_at_s = [], 0, False, None

    async def close(self) -> None:
        """Write the waiting entries and stop recording."""
        while self._writing is not None or self._waiting:
            if self._timer is not None and self._timer.active():
                self._timer.cancel()
            if self._writing is None:
                self._write()
            assert self._writing is not None
            await self._writing
        self._ended = True
        await self._runtime.offload.run(self._files.close)


class _FileWriter:
    """Writes the files; its methods run on another thread, one call at a time."""

    def __init__(self, runtime: Runtime, settings: JournalSettings) -> None:
        self._disk = runtime.disk
        self._settings = settings
        self._older: dict[str, int] = {}
        """Sizes of the earlier files, oldest first."""
        self._has_scanned = False
        self._number = 0
        self._file: File | None = None
        self._size = 0
        self._full_at = 0
        self._entries_count = 0

    def write(self, entries: list[Entry | _NewFile]) -> bool:
        """Append entries; return True if the file is full.

        :raise OSError: the disk failed or is full.
        :raise JournalTooSmall: the newest file alone exceeds the size limit.
        """
        try:
            self._write(entries)
        except (OSError, JournalTooSmall):
            self._leave_file()
            raise
        return self._size >= self._full_at

    def _write(self, entries: list[Entry | _NewFile]) -> None:
        lines: list[bytes] = []
        for entry in entries:
            if isinstance(entry, _NewFile):
                self._append(lines)
                self._open(entry.head)
                lines = []
            else:
                self._entries_count += 1
                lines.append(encode_line(self._entries_count, entry))
        self._append(lines)
        self._remove_oldest()

    def close(self) -> None:
        """Close the current file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _leave_file(self) -> None:
        """Truncate a damaged file to its complete lines, and skip a file number to mark the gap."""
        self._number += 1
        file, self._file = self._file, None
        if file is None:
            return
        with suppress(OSError):
            if self._size:
                self._older[file.path] = self._size
                file.truncate(self._size)
            else:
                self._disk.remove(file.path)
        file.close()

    def _open(self, head: Entry) -> None:
        directory, broker_id, bytes_max = self._settings
        if not self._has_scanned:
            self._older = self._find()
            self._has_scanned = True
        if self._file is not None:
            self._older[self._file.path] = self._size
            self._file.close()
            self._file = None
        self._number += 1
        self._entries_count = self._size = 0
        self._file = self._disk.open(f"{directory}/{file_name(broker_id, self._number)}", create=True)
        line = encode_line(0, head)
        self._append([line])
        self._full_at = max(bytes_max // FILE_COUNT, 2 * len(line))

    def _find(self) -> dict[str, int]:
        """Find the files of earlier processes; the next file gets a higher number."""
        directory, broker_id, _ = self._settings
        self._disk.make_directories(directory)
        found = {}
        for name in self._disk.list_directory(directory):
            number = name.removeprefix(prefix(broker_id)).removesuffix(".jsonl")
            if name == prefix(broker_id) + number + ".jsonl" and number.isdecimal():
                self._number = max(self._number, int(number))
                path = f"{directory}/{name}"
                file = self._disk.open(path)
                found[path] = file.size()
                file.close()
        return found

    def _append(self, lines: list[bytes]) -> None:
        if lines:
            assert self._file is not None, "a journal starts with a file header"
            self._size += self._file.write_at(self._size, lines)

    def _remove_oldest(self) -> None:
        bytes_max, older = self._settings.bytes_max, self._older
        while older and sum(older.values()) + self._size > bytes_max:
            path = next(iter(older))
            with suppress(FileNotFoundError):  # removed by an operator
                self._disk.remove(path)
            del older[path]
        if self._size > bytes_max:
            raise JournalTooSmall(f"the limit of {bytes_max} bytes is too small for a single file")


