"""Fails a storm in which a program logs an unhandled error."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from twisted.logger import ILogObserver, LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

from kreplica.errors import KreplicaError

EXPECTED_ERRORS = (KreplicaError, OSError)
"""Errors of a program's environment, which may be logged."""

UNHANDLED_NAMESPACE = "twisted.internet.defer"
"""Log namespace of unhandled errors in a Deferred, which are never allowed."""


class UnexpectedLog(AssertionError):
    """A program logged an error that is not allowed."""


@implementer(ILogObserver)
class LogWatch:
    """Context manager that keeps the first disallowed entry of Twisted's log."""

    def __init__(self) -> None:
        self._error: str | None = None

    def __enter__(self) -> Self:
        globalLogPublisher.addObserver(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        globalLogPublisher.removeObserver(self)

    def __call__(self, event: Any) -> None:
        if self._error is not None or event.get("log_level", LogLevel.info) < LogLevel.critical:
            return
        failure = event.get("log_failure")
        is_unhandled = event.get("log_namespace") == UNHANDLED_NAMESPACE
        if isinstance(failure, Failure) and (is_unhandled or not failure.check(*EXPECTED_ERRORS)):
            text = formatEvent(event) or "unhandled error"
            self._error = f"{text}: {failure.getErrorMessage()}\n{failure.getTraceback()}"

    def check(self) -> None:
        if self._error is not None:
            raise UnexpectedLog(self._error)
