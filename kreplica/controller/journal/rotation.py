"""Starts a new journal file when the controller is idle long enough to snapshot its state."""

from __future__ import annotations

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.controller.controller import Controller
from kreplica.controller.dependencies import ControllerDependencies
from kreplica.controller.journal.file_header import Steps, file_header, is_idle, state_of
from kreplica.controller.journal.files import JournalFiles
from kreplica.controller.journal.recorder import Entry, Journal
from kreplica.runtime.time_slice import TimeSlice

log = Logger()

RETRY_SECONDS = 1.0
"""Delay before a snapshot that was interrupted by a new entry is retried."""


class JournalRotator:
    """Rotates the journal of one controller; ``rotate_if_due`` is called after each input and when a file is full.

    A snapshot of 100,000 partitions takes many reactor iterations.  If an entry is recorded in between, the snapshot is
    outdated and is repeated later.
    """

    def __init__(
        self, dependencies: ControllerDependencies, controller: Controller, journal: Journal, files: JournalFiles
    ) -> None:
        self._dependencies = dependencies
        self._reactor = dependencies.runtime.reactor
        self._controller = controller
        self._journal = journal
        self._files = files
        self._entries_count = 0
        self._timer: IDelayedCall | None = None

    def rotate_if_due(self) -> None:
        """Start a new file if one is due and the controller is idle.  Must be called from outside the controller."""
        if self._timer is None and self._files.is_due and is_idle(self._controller, self._journal):
            self._entries_count = self._files.entries_count
            self._continue(state_of(self._controller, self._journal))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _retry(self) -> None:
        self._timer = None
        self.rotate_if_due()

    def _continue(self, steps: Steps[Entry]) -> None:
        self._timer = None
        if self._files.entries_count != self._entries_count:
            self._timer = self._reactor.callLater(RETRY_SECONDS, self._retry)
            return
        try:
            state = self._advance(steps)
            if state is None:
                self._timer = self._reactor.callLater(0, self._continue, steps)
                return
            self._files.begin(file_header(self._dependencies, state))
        except Exception as error:
            # The caller may be the controller, which must not fail because of its journal.
            log.failure("cannot snapshot the controller's state")
            self._files.end(repr(error))
        self._journal.forget_known()

    def _advance(self, steps: Steps[Entry]) -> Entry | None:
        """Continue the snapshot for this reactor iteration; return it if it is complete."""
        time_slice = TimeSlice(self._reactor)
        try:
            while not time_slice.is_over:
                next(steps)
        except StopIteration as stop:
            state: Entry = stop.value
            return state
        return None
