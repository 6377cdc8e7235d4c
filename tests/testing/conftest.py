"""What is logged as a failure fails the test, unless the test expects it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure

THROWN_AWAY = "cannot reuse already awaited coroutine"
"""What a coroutine of a killed process says to whom waits for it, when Python throws both away in this order."""


@pytest.fixture
def logged_errors() -> Iterator[list[str]]:
    """Texts of what was logged at error level or above; a test takes out what it expects."""
    gc.collect()  # what earlier tests have left behind is theirs
    errors: list[str] = []

    def observe(event: Any) -> None:
        if event.get("log_level", LogLevel.info) >= LogLevel.error:
            failure = event.get("log_failure")
            if failure is not None and _is_thrown_away(failure):
                return
            errors.append(formatEvent(event) + (f": {failure.getTraceback()}" if failure else ""))

    globalLogPublisher.addObserver(observe)
    try:
        yield errors
        gc.collect()  # what nobody awaited speaks up when it is thrown away
    finally:
        globalLogPublisher.removeObserver(observe)
    assert errors == []


def _is_thrown_away(failure: Failure) -> bool:
    """Whether nobody lives whom it concerns: only what Python throws away can fail like this."""
    return failure.check(RuntimeError) is not None and failure.getErrorMessage() == THROWN_AWAY
