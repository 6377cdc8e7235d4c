"""A controller with a journal on disk, put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.logger import Logger

from kreplica.controller.controller import Controller
from kreplica.controller.journal import Journal
from kreplica.controller.journal_files import JournalFiles, JournalSettings
from kreplica.controller.journal_head import head, is_at_rest, state_of
from kreplica.controller.journal_seams import recorded
from kreplica.controller.surroundings import Surroundings

log = Logger()


async def _nothing_to_write() -> None:
    return


def journaled(
    surroundings: Surroundings, settings: JournalSettings | None
) -> tuple[Controller, Callable[[], Awaitable[None]]]:
    """A controller whose run is kept.

    :param settings: None where it is not kept.
    :return: it, and what to await when it has stopped: the end of its journal is on disk then.
    """
    if settings is None:
        return Controller(surroundings), _nothing_to_write
    files = JournalFiles(surroundings.runtime, settings, lambda: head(surroundings))
    journal = Journal(files, surroundings.runtime.reactor.seconds)
    controller = Controller(recorded(surroundings, journal), journal)

    def rested() -> None:
        if files.is_full and is_at_rest(controller, journal):
            try:
                files.begin(head(surroundings, state_of(controller, journal)))
            except Exception as error:
                # It was called from the midst of the controller, which has nothing to do with it.
                log.failure("where the controller stands cannot be told")
                files.end(repr(error))
            journal.forget_known()

    journal.rested = rested
    return controller, files.close
