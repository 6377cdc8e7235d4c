"""A controller with a journal on disk, put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kreplica.controller.controller import Controller
from kreplica.controller.journal import Journal
from kreplica.controller.journal_files import JournalFiles, JournalSettings
from kreplica.controller.journal_head import head
from kreplica.controller.journal_rests import Rests
from kreplica.controller.journal_seams import recorded
from kreplica.controller.surroundings import Surroundings


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
    rests = Rests(surroundings, controller, journal, files)
    journal.rested = files.became_due = rests.look

    async def close() -> None:
        rests.stop()
        await files.close()

    return controller, close
