"""Interface for recording a controller (implemented by ``journal.recorder``); the default implementation does nothing.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from kreplica.controller.event_types import ControllerRequest, Event


class ControllerObserver:
    """Notified of calls to the controller and of its handling of events."""

    def called(self, method: str) -> AbstractContextManager[None]:
        """Called when a controller method is called; the context manager encloses the immediate effects."""
        return nullcontext()

    def request_received(self, request: ControllerRequest) -> AbstractContextManager[None]:
        """Called when a request arrives; the context manager encloses the immediate effects."""
        return nullcontext()

    def queued(self, event: Event) -> None:
        """Called when an event is queued."""

    def began(self, event: Event) -> None:
        """Called when the handling of an event starts."""

    def failed(self, event: Event, error: BaseException) -> None:
        """Called when the handler of the current event raises an error."""

    def ended(self, event: Event) -> None:
        """Called when the handling of an event ends, successfully or not."""

    def term_started(self, controller_epoch: int) -> None:
        """Called when the broker is elected."""

    def term_ended(self) -> None:
        """Called when the broker resigns."""
