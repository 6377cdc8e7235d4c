"""Records, in each log directory, since which registration the broker's logs have been intact.

A killed process loses nothing that it wrote while its machine stays up (``docs/decisions/0006``). The end of a log can
be lost if the machine goes down without a clean shutdown, or if directories or logs are removed. Each of these cases
is detected from the notes and starts a new incarnation.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from twisted.logger import Logger

from kreplica.model import NO_BROKER_EPOCH, BrokerRegistration
from kreplica.runtime import Runtime
from kreplica.storage.directories.log_directories import LogDirectories

log = Logger()

FILE_NAME = "incarnation"


@dataclass(frozen=True, slots=True)
class Note:
    """Note about the last registration, identical in all log directories of a broker.

    :param broker_epoch: broker epoch of that registration; it makes the note unique.
    :param intact_since: see ``BrokerRegistration``.
    :param boot_id: boot ID of the machine at that time.
    :param directories_count: number of directories, to detect a removed one.
    """

    broker_epoch: int
    intact_since: int
    boot_id: str
    directories_count: int


def intact_since(notes: Sequence[Note | None], *, boot_id: str, clean_epoch: int | None, logs_missing: bool) -> int:
    """Return the broker epoch since which nothing was lost, or -1 if something may have been lost.

    :param notes: one per log directory, None if it cannot be read.
    :param boot_id: current boot ID; if empty (unknown), the logs are intact only after a clean shutdown.
    :param clean_epoch: broker epoch in the markers of a clean shutdown; None if any directory lacks it.
    :param logs_missing: True if a log in the last checkpoint is missing or has lost its end.
    """
    note = notes[0] if notes else None
    if note is None or logs_missing or len(notes) != note.directories_count or any(other != note for other in notes):
        return NO_BROKER_EPOCH
    was_clean = clean_epoch == note.broker_epoch
    return note.intact_since if is_same_boot(boot_id, note.boot_id) or was_clean else NO_BROKER_EPOCH


def is_same_boot(boot_id: str, noted: str) -> bool:
    """Return True if the machine has not been restarted, so that the page cache has all writes of a killed process.

    :param boot_id: current boot ID; empty if unknown.
    """
    return bool(boot_id) and boot_id == noted


class Incarnations:
    """Reads the notes after the log directories are opened and writes them at each registration; owned by the broker.

    :ivar last_epoch: broker epoch of the registration before this start; -1 if unknown.
    """

    def __init__(self, runtime: Runtime, directories: LogDirectories) -> None:
        self._disk = runtime.disk
        self._boot_id = runtime.boot_id
        self._directories = directories
        self._intact_since = NO_BROKER_EPOCH
        self.last_epoch = NO_BROKER_EPOCH
        directories.on_offline(lambda _: self._directory_failed())

    @property
    def intact_since(self) -> int:
        """``intact_since`` of the next registration."""
        return self._intact_since

    def is_intact(self, directory: str) -> bool:
        """Return True if a directory holds everything that earlier processes of this broker had written.

        This is the case if its note was written since the machine was started, because a broker recovers the logs
        before it registers.
        """
        note = self._read(os.path.join(directory, FILE_NAME))
        return note is not None and is_same_boot(self._boot_id, note.boot_id)

    def begin(self) -> None:
        """Determine whether the logs are still intact; an offline directory is treated as a loss."""
        directories = self._directories.directories
        missing = [key for directory in directories for key in directory.missing]
        if missing:
            log.warn("logs are missing from the log directories: {missing}", missing=", ".join(map(str, missing[:10])))
        # A truncated log may only lack records that were never acknowledged, but that cannot be distinguished from a
        # loss of the device.
        missing += [key for directory in directories for key in directory.truncated_logs]
        notes = [
            # The note of an offline directory does not describe the state of its logs.
            self._read(path) if directory.offline is None else None
            for directory, path in zip(directories, self._paths(), strict=True)
        ]
        self.last_epoch = max((note.broker_epoch for note in notes if note is not None), default=NO_BROKER_EPOCH)
        self._intact_since = intact_since(
            notes,
            boot_id=self._boot_id,
            clean_epoch=self._directories.clean_broker_epoch,
            logs_missing=bool(missing),
        )
        if self._intact_since == NO_BROKER_EPOCH:
            self._directories.limit_high_watermarks()
            # If this process is killed before it registers, the old notes must not be valid for the next start.
            self._remove_notes()

    def registered(self, registration: BrokerRegistration) -> None:
        """Write the notes; if this fails (full disk), the next start may consider the logs incomplete."""
        if self._intact_since == NO_BROKER_EPOCH:
            self._intact_since = registration.epoch
        if any(directory.offline is not None for directory in self._directories.directories):
            return
        paths = self._paths()
        note = Note(registration.epoch, self._intact_since, self._boot_id, len(paths))
        data = json.dumps({"version": 0, **asdict(note)}, separators=(",", ":")).encode()
        for path in paths:
            try:
                # Synced, so that after a clean shutdown followed by a power loss, the note and the marker have the
                # same epoch.
                self._disk.write_file(path, data)
            except OSError as error:
                log.warn("cannot write {path}: {error}", path=path, error=error)

    def _directory_failed(self) -> None:
        """Start a new incarnation: a failed device may have lost writes that the kernel had accepted.

        A single failed log is not handled here: the controller is notified separately.
        """
        if all(directory.offline is None for directory in self._directories.directories):
            return
        self._intact_since = NO_BROKER_EPOCH
        self._remove_notes()

    def _remove_notes(self) -> None:
        """Remove all notes, so that the next start detects the loss.

        Includes failed directories: the removal may succeed, and the note of the only directory would hide the loss.
        """
        for path in self._paths():
            try:
                self._disk.remove(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                log.warn("cannot remove an incarnation note: {error}", error=error)

    def _read(self, path: str) -> Note | None:
        try:
            document = json.loads(self._disk.read_file(path))
            return Note(
                int(document["broker_epoch"]),
                int(document["intact_since"]),
                str(document["boot_id"]),
                int(document["directories_count"]),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warn("cannot read {path}: {error}", path=path, error=error)
            return None

    def _paths(self) -> list[str]:
        return [os.path.join(directory.path, FILE_NAME) for directory in self._directories.directories]
