"""What is logged as a failure fails the test, unless the test expects it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import LogLevel, formatEvent, globalLogPublisher


@pytest.fixture
def logged_errors() -> Iterator[list[str]]:
    """Texts of what was logged at error level or above; a test takes out what it expects."""
    errors: list[str] = []

    def observe(event: Any) -> None:
        if event.get("log_level", LogLevel.info) >= LogLevel.error:
            failure = event.get("log_failure")
            errors.append(formatEvent(event) + (f": {failure.getTraceback()}" if failure else ""))

    globalLogPublisher.addObserver(observe)
    try:
        yield errors
        gc.collect()  # what nobody awaited speaks up when it is thrown away
    finally:
        globalLogPublisher.removeObserver(observe)
    assert errors == []
