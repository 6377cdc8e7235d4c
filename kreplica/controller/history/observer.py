"""Interface for recording a controller (implemented by ``journal.recorder``); the default implementation does nothing.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from kreplica.controller.event_types import ControllerRequest, Event


class ControllerObserver:
    """Notified of calls to the controller and of its handling of events."""

    def called(self, method: str) -> AbstractContextManager[None]:
        """A method of the controller was called; the returned context manager encloses its immediate effects."""
        return nullcontext()

    def asked(self, question: ControllerRequest) -> AbstractContextManager[None]:
        """A request arrived; the returned context manager encloses its immediate effects."""
        return nullcontext()

    def queued(self, event: Event) -> None:
        """An event was queued."""

    def began(self, event: Event) -> None:
        """The handling of an event starts."""

    def failed(self, event: Event, error: BaseException) -> None:
        """The handler of the current event raised an error."""

    def ended(self, event: Event) -> None:
        """The handling of an event ended, successfully or not."""

    def term_started(self, controller_epoch: int) -> None:
        """The broker was elected."""

    def term_ended(self) -> None:
        """The broker resigned."""
