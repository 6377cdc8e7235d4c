"""What programs log of their own mistakes: errors that nobody handled, above all.  A storm is to end without any."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from twisted.logger import ILogObserver, LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.errors import KreplicaError

FORESEEN = (KreplicaError, OSError)
"""What may be logged: what a program says of the world around it."""

UNHANDLED = "twisted.internet.defer"
"""Who logs an error of a Deferred that nobody handled: whatever error that is, somebody was to be told."""


class UnexpectedLog(AssertionError):
    """Something was logged that never should be."""


@implementer(ILogObserver)
class LogWatch:
    """Keeps the first such entry of Twisted's log while it is entered."""

    def __init__(self) -> None:
        self._found: str | None = None

    def __enter__(self) -> Self:
        globalLogPublisher.addObserver(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        globalLogPublisher.removeObserver(self)

    def __call__(self, event: Any) -> None:
        if self._found is not None or event.get("log_level", LogLevel.info) < LogLevel.critical:
            return
        failure = event.get("log_failure")
        is_unhandled = event.get("log_namespace") == UNHANDLED
        if isinstance(failure, Failure) and (is_unhandled or not failure.check(*FORESEEN)):
            what = formatEvent(event) or "nobody handled an error"
            self._found = f"{what}: {failure.getErrorMessage()}\n{failure.getTraceback()}"

    def check(self) -> None:
        """:raise UnexpectedLog: with what was logged."""
        if self._found is not None:
            raise UnexpectedLog(self._found)
