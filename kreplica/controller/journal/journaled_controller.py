"""A controller with a journal on disk, put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kreplica.controller.controller import Controller
from kreplica.controller.dependencies import Surroundings
from kreplica.controller.journal.file_header import head
from kreplica.controller.journal.files import JournalFiles, JournalSettings
from kreplica.controller.journal.recorder import Journal
from kreplica.controller.journal.recording_proxies import recorded
from kreplica.controller.journal.rotation import Rests


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
