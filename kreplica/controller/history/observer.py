"""What a controller tells of itself while it runs, for whoever keeps it (``journal``); by itself it keeps nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from kreplica.controller.event_types import Event, Question


class Diary:
    """Told of what a controller's surroundings do not show: who calls it, and what it does with events."""

    def called(self, method: str) -> AbstractContextManager[None]:
        """The controller's owner calls this method of it; within this is what follows at once."""
        return nullcontext()

    def asked(self, question: Question) -> AbstractContextManager[None]:
        """Somebody asks; within this is what follows at once."""
        return nullcontext()

    def queued(self, event: Event) -> None:
        """An event waits to be handled."""

    def began(self, event: Event) -> None:
        """An event is being handled now."""

    def failed(self, event: Event, error: BaseException) -> None:
        """Its handler raised this."""

    def ended(self, event: Event) -> None:
        """It was handled, however that went."""

    def took_office(self, controller_epoch: int) -> None:
        """The broker was elected, and takes office now."""

    def resigned(self) -> None:
        """The broker holds the office no more."""
