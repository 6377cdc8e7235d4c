"""A journal on disk: files of bounded size, the oldest removed, written beside whatever else the broker does.

Entries gather in memory for a moment, then a thread of ``Offload`` turns them into lines and appends these.  Nothing is
synced: what a killed process had written stays, a power loss costs the last lines.  A write that fails, on a full disk
or a failing one, leaves a gap with one line in the log, and a new file is tried every ``RETRY_SECONDS``.  Only a bound
that is too small for one file ends the journal.  It never concerns the controller.
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
"""So long entries wait to be written with others; so much of a run is missing when the process is killed."""

WEIGHT_MAX = 500_000
"""Znodes, partitions and entries that may wait to be written: some 100 MB."""

RETRY_SECONDS = 60.0
"""Delay between a write that failed and the next attempt."""

FILES_COUNT = 4
"""The journal is cut into so many files at least, so that the oldest can go."""


class JournalSettings(NamedTuple):
    """:param directory: where its files are; other files there are left alone.
    :param bytes_max: of all files together.
    """

    directory: str
    broker_id: int
    bytes_max: int


class JournalTooSmall(Exception):
    """One file alone exceeds the bound of the whole journal."""


class _Begin(NamedTuple):
    """What waits to be written: the head of a new file."""

    head: Entry


def file_name(broker_id: int, number: int) -> str:
    """The files of a broker follow each other by number, also those of its later processes."""
    return f"{prefix(broker_id)}{number:08d}.jsonl"


def prefix(broker_id: int) -> str:
    return f"controller-journal-{broker_id}-"


class JournalFiles:
    """A keeper of one journal.  Before the first entry there is nothing, neither a file nor a timer.

    :param first_head: makes the head of the first file.
    :ivar is_due: True if a new file should begin: the present one is long enough, or a failed write is to be retried.
    :ivar became_due: called when it is; never in the midst of the controller.
    :ivar noted: how many entries there were.
    """

    def __init__(self, runtime: Runtime, settings: JournalSettings, first_head: Callable[[], Entry]) -> None:
        self._runtime = runtime
        self._first_head: Callable[[], Entry] | None = first_head
        self._files = _Files(runtime, settings)
        self._waiting: list[Entry | _Begin] = []
        self._weight = 0
        self._timer: IDelayedCall | None = None
        self._writing: Deferred[None] | None = None
        self._over = False
        self._is_full = False
        self._try_at_s: float | None = None
        """Time of the next attempt after a failed write; entries are dropped until then."""
        self._gap_told = False
        self.became_due: Callable[[], None] = lambda: None
        self.noted = 0

    @property
    def is_due(self) -> bool:
        try_at_s = self._try_at_s
        return self._is_full if try_at_s is None else self._runtime.reactor.seconds() >= try_at_s

    def begin(self, head: Entry) -> None:
        """What is noted from here on goes to a new file."""
        self._is_full = False
        self._try_at_s = None
        if not self._over:
            self._add(_Begin(head), 1)

    def note(self, entry: Entry, weight: int = 1) -> None:
        if self._over:
            return
        self.noted += 1
        if self._first_head is not None:
            make, self._first_head = self._first_head, None
            self.begin(make())
        if self._try_at_s is None:
            self._add(entry, weight)

    def _add(self, entry: Entry | _Begin, weight: int) -> None:
        self._waiting.append(entry)
        self._weight += weight
        if self._weight > WEIGHT_MAX:
            self.end("entries come faster than the disk takes them")
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
        if self._gap_told:
            self._gap_told = False
            log.info("the controller's journal goes on")
        self._is_full = is_full and not self._over and not any(isinstance(each, _Begin) for each in self._waiting)
        if self._waiting and not self._over:
            self._timer = self._runtime.reactor.callLater(GATHER_SECONDS, self._write)
        if self.is_due:
            self.became_due()

    def _failed(self, failure: Failure) -> None:
        self._writing = None
        if isinstance(failure.value, OSError) and not self._over:
            self._leave_gap(failure.getErrorMessage())
        else:
            self.end(failure.getErrorMessage())

    def _leave_gap(self, reason: str) -> None:
        self._waiting, self._weight, self._is_full = [], 0, False
        self._try_at_s = self._runtime.reactor.seconds() + RETRY_SECONDS
        if not self._gap_told:
            self._gap_told = True
            log.error(
                "the controller's journal has a gap from here on, a new file is tried every {seconds:g} s: {reason}",
                seconds=RETRY_SECONDS,
                reason=reason,
            )

    def end(self, reason: str) -> None:
        """Note nothing any more; what is written stays."""
        if not self._over:
            self._over = True
            log.error("the controller's journal ends here: {reason}", reason=reason)
        self._waiting, self._weight, self._is_full, self._try_at_s = [], 0, False, None

    async def close(self) -> None:
        """Write what waits; nothing is noted any more."""
        while self._writing is not None or self._waiting:
            if self._timer is not None and self._timer.active():
                self._timer.cancel()
            if self._writing is None:
                self._write()
            assert self._writing is not None
            await self._writing
        self._over = True
        await self._runtime.offload.run(self._files.close)


class _Files:
    """The part that runs on another thread, one call at a time."""

    def __init__(self, runtime: Runtime, settings: JournalSettings) -> None:
        self._disk = runtime.disk
        self._settings = settings
        self._older: dict[str, int] = {}
        """Their sizes, the oldest first."""
        self._is_found = False
        self._number = 0
        self._file: File | None = None
        self._size = 0
        self._full_at = 0
        self._entries_count = 0

    def write(self, entries: list[Entry | _Begin]) -> bool:
        """Append these; whether the file is full.

        :raise OSError: the disk failed or is full.
        :raise JournalTooSmall: the newest file does not fit the bound.
        """
        try:
            self._write(entries)
        except (OSError, JournalTooSmall):
            self._leave_file()
            raise
        return self._size >= self._full_at

    def _write(self, entries: list[Entry | _Begin]) -> None:
        lines: list[bytes] = []
        for entry in entries:
            if isinstance(entry, _Begin):
                self._append(lines)
                self._open(entry.head)
                lines = []
            else:
                self._entries_count += 1
                lines.append(encode_line(self._entries_count, entry))
        self._append(lines)
        self._remove_oldest()

    def close(self) -> None:
        """Let go of the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _leave_file(self) -> None:
        """What is whole of it stays.  A number is left out: the next file does not go on with it."""
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
        if not self._is_found:
            self._older = self._find()
            self._is_found = True
        if self._file is not None:
            self._older[self._file.path] = self._size
            self._file.close()
            self._file = None
        self._number += 1
        self._entries_count = self._size = 0
        self._file = self._disk.open(f"{directory}/{file_name(broker_id, self._number)}", create=True)
        line = encode_line(0, head)
        self._append([line])
        self._full_at = max(bytes_max // FILES_COUNT, 2 * len(line))

    def _find(self) -> dict[str, int]:
        """The files of earlier processes; the next gets a number of its own."""
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
            assert self._file is not None, "a journal begins with the head of a file"
            self._size += self._file.write_at(self._size, lines)

    def _remove_oldest(self) -> None:
        bytes_max, older = self._settings.bytes_max, self._older
        while older and sum(older.values()) + self._size > bytes_max:
            path = next(iter(older))
            with suppress(FileNotFoundError):  # somebody else wanted its room
                self._disk.remove(path)
            del older[path]
        if self._size > bytes_max:
            raise JournalTooSmall(f"{bytes_max} bytes do not hold what a controller does until it comes to rest")


