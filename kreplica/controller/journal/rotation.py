"""Begins the next file of a journal where its controller rests long enough to tell where it stands."""

from __future__ import annotations

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.controller.controller import Controller
from kreplica.controller.dependencies import Surroundings
from kreplica.controller.journal.file_header import Steps, head, is_at_rest, state_of
from kreplica.controller.journal.files import JournalFiles
from kreplica.controller.journal.recorder import Entry, Journal
from kreplica.runtime.turns import Turns

log = Logger()

RETRY_SECONDS = 1.0
"""So long to wait after a rest that was too short: what was told of it was for nothing."""


class Rests:
    """Of one controller; its journal calls ``look`` where one may be.

    What 100,000 partitions are takes many turns of the reactor to tell.  Where an entry is noted between two of them
    that is not where the controller stands any more, and all begins anew at a later rest.
    """

    def __init__(
        self, surroundings: Surroundings, controller: Controller, journal: Journal, files: JournalFiles
    ) -> None:
        self._surroundings = surroundings
        self._reactor = surroundings.runtime.reactor
        self._controller = controller
        self._journal = journal
        self._files = files
        self._noted = 0
        self._timer: IDelayedCall | None = None

    def look(self) -> None:
        """Begin a file where one is due and the controller rests; to be called outside of it."""
        if self._timer is None and self._files.is_due and is_at_rest(self._controller, self._journal):
            self._noted = self._files.noted
            self._go_on(state_of(self._controller, self._journal))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_again(self) -> None:
        self._timer = None
        self.look()

    def _go_on(self, telling: Steps[Entry]) -> None:
        self._timer = None
        if self._files.noted != self._noted:
            self._timer = self._reactor.callLater(RETRY_SECONDS, self._look_again)
            return
        try:
            state = self._turn_of(telling)
            if state is None:
                self._timer = self._reactor.callLater(0, self._go_on, telling)
                return
            self._files.begin(head(self._surroundings, state))
        except Exception as error:
            # It may be called from the midst of the controller, which has nothing to do with it.
            log.failure("where the controller stands cannot be told")
            self._files.end(repr(error))
        self._journal.forget_known()

    def _turn_of(self, telling: Steps[Entry]) -> Entry | None:
        """What is told where that ends within this turn."""
        turns = Turns(self._reactor)
        try:
            while not turns.is_over:
                next(telling)
        except StopIteration as told:
            state: Entry = told.value
            return state
        return None
