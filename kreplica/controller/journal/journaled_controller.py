"""Builds a controller with a journal on disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kreplica.controller.controller import Controller
from kreplica.controller.dependencies import ControllerDependencies
from kreplica.controller.journal.file_header import file_header
from kreplica.controller.journal.files import JournalFiles, JournalSettings
from kreplica.controller.journal.recorder import Journal
from kreplica.controller.journal.recording_proxies import recorded
from kreplica.controller.journal.rotation import JournalRotator


async def _no_journal_to_close() -> None:
    return


def journaled(
    dependencies: ControllerDependencies, settings: JournalSettings | None
) -> tuple[Controller, Callable[[], Awaitable[None]]]:
    """Return a controller, recorded if there are settings.

    :param settings: None to record nothing.
    :return: the controller, and a function to await after it has stopped, which completes the journal on disk.
    """
    if settings is None:
        return Controller(dependencies), _no_journal_to_close
    files = JournalFiles(dependencies.runtime, settings, lambda: file_header(dependencies))
    journal = Journal(files, dependencies.runtime.reactor.seconds)
    controller = Controller(recorded(dependencies, journal), journal)
    rotator = JournalRotator(dependencies, controller, journal, files)
    journal.on_idle = files.became_due = rotator.rotate_if_due

    async def close() -> None:
        rotator.stop()
        await files.close()

    return controller, close
