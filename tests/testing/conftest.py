"""Fails tests that log unexpected failures."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure

REUSED_COROUTINE = "cannot reuse already awaited coroutine"
"""Error raised in the waiter of a killed process's coroutine if Python collects the coroutine before the waiter."""


@pytest.fixture
def logged_errors() -> Iterator[list[str]]:
    """Collect messages logged at error level or above; a test removes those that it expects."""
    gc.collect()  # garbage left by earlier tests
    errors: list[str] = []

    def observe(event: Any) -> None:
        if event.get("log_level", LogLevel.info) >= LogLevel.error:
            failure = event.get("log_failure")
            if failure is not None and _comes_from_garbage(failure):
                return
            errors.append(formatEvent(event) + (f": {failure.getTraceback()}" if failure else ""))

    globalLogPublisher.addObserver(observe)
    try:
        yield errors
        gc.collect()  # a failure without errback is logged when it is collected
    finally:
        globalLogPublisher.removeObserver(observe)
    assert errors == []


def _comes_from_garbage(failure: Failure) -> bool:
    """Return True for a failure that only occurs if a coroutine and its waiter are collected together."""
    return failure.check(RuntimeError) is not None and failure.getErrorMessage() == REUSED_COROUTINE
