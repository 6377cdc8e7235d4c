"""Since when a broker's logs have lost nothing: noted in every log directory, and read again at the next start.

A process that is killed loses nothing that it wrote, as long as its machine stays up (``docs/decisions``: killed is not
powered off).  What can take the end of a log away is the machine's going down without an orderly stop, and an operator
or a device that takes whole directories or logs.  Each of these shows in the notes, and the chain begins anew.
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
    """What every log directory of a broker says of the last registration: the same in each.

    :param broker_epoch: of that registration, which makes the note unique.
    :param intact_since: as it holds from that registration on; see ``BrokerRegistration``.
    :param boot_id: of the machine at that time.
    :param directories_count: how many directories the broker had: one that was taken away leaves no other trace.
    """

    broker_epoch: int
    intact_since: int
    boot_id: str
    directories_count: int


def intact_since(notes: Sequence[Note | None], *, boot_id: str, clean_epoch: int | None, logs_missing: bool) -> int:
    """The broker epoch since which nothing was lost; -1 where something may be.

    :param notes: one per log directory, None where there is none that can be read.
    :param boot_id: of the machine now; empty where nobody can tell, and then only an orderly stop counts.
    :param clean_epoch: the broker epoch in the markers of an orderly stop; None where any directory lacks it.
    :param logs_missing: whether a log is gone that the last checkpoint still knew, or the end of one is.
    """
    note = notes[0] if notes else None
    if note is None or logs_missing or len(notes) != note.directories_count or any(other != note for other in notes):
        return NO_BROKER_EPOCH
    stopped_in_order = clean_epoch == note.broker_epoch
    return note.intact_since if is_same_boot(boot_id, note.boot_id) or stopped_in_order else NO_BROKER_EPOCH


def is_same_boot(boot_id: str, noted: str) -> bool:
    """Whether the machine has stayed up, so that its page cache holds what a killed process wrote.

    :param boot_id: of now; empty where nobody can tell.
    """
    return bool(boot_id) and boot_id == noted


class Incarnations:
    """Owned by the broker; reads its directories' notes once they are open, and writes them at each registration.

    :ivar last_epoch: of the registration before this start; -1 where that is not known.
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
        """What the next registration says."""
        return self._intact_since

    def is_intact(self, directory: str) -> bool:
        """Return whether a directory holds everything that earlier processes of this broker had written.

        It does if a broker registered with it since the machine was started: its logs were recovered before that.
        """
        note = self._read(os.path.join(directory, FILE_NAME))
        return note is not None and is_same_boot(self._boot_id, note.boot_id)

    def begin(self) -> None:
        """Find out whether the last incarnation lost anything: what is in a directory that is offline, say."""
        directories = self._directories.directories
        missing = [key for directory in directories for key in directory.missing]
        if missing:
            log.warn("logs are gone that were here: {missing}", missing=", ".join(map(str, missing[:10])))
        # A process that is killed leaves at most a part of what it had not said to anybody that it has.  But who can
        # tell that from what the device did not keep?
        missing += [key for directory in directories for key in directory.cut]
        notes = [
            # What an offline directory says of itself, its logs do not bear out.
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
            self._directories.forget_high_watermarks()
            # Killed before the next registration, this start would leave notes that look as if nothing had happened.
            self._remove_notes()

    def registered(self, registration: BrokerRegistration) -> None:
        """Note the registration; where that is not possible (a full disk), the next start takes logs for incomplete."""
        if self._intact_since == NO_BROKER_EPOCH:
            self._intact_since = registration.epoch
        if any(directory.offline is not None for directory in self._directories.directories):
            return
        paths = self._paths()
        note = Note(registration.epoch, self._intact_since, self._boot_id, len(paths))
        data = json.dumps({"version": 0, **asdict(note)}, separators=(",", ":")).encode()
        for path in paths:
            try:
                # Synced: the marker of an orderly stop, which is synced too, would make an older note count again.
                self._disk.write_file(path, data)
            except OSError as error:
                log.warn("{path} cannot be written: {error}", path=path, error=error)

    def _directory_failed(self) -> None:
        """A device that failed may have lost what the kernel had taken, whatever it gives back after a restart.

        A single log that was taken out is another matter: the controller hears of that one by itself.
        """
        if all(directory.offline is None for directory in self._directories.directories):
            return
        self._intact_since = NO_BROKER_EPOCH
        self._remove_notes()

    def _remove_notes(self) -> None:
        """Let the next start find none.

        Also in a directory that failed: a device may take this and not that, and where there is no other directory
        nothing else would tell the next start.
        """
        for path in self._paths():
            try:
                self._disk.remove(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                log.warn("a note of what was lost cannot be removed: {error}", error=error)

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
            log.warn("{path} cannot be read: {error}", path=path, error=error)
            return None

    def _paths(self) -> list[str]:
        return [os.path.join(directory.path, FILE_NAME) for directory in self._directories.directories]
