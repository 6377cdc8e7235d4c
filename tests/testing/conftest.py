"""Fails tests that log unexpected failures."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure

COLLECTED = "cannot reuse already awaited coroutine"
"""Error that a killed process's coroutine reports to its waiter, if Python collects both in this order."""


@pytest.fixture
def logged_errors() -> Iterator[list[str]]:
    """Messages logged at error level or above; a test removes those that it expects."""
    gc.collect()  # garbage of earlier tests
    errors: list[str] = []

    def observe(event: Any) -> None:
        if event.get("log_level", LogLevel.info) >= LogLevel.error:
            failure = event.get("log_failure")
            if failure is not None and _is_of_garbage(failure):
                return
            errors.append(formatEvent(event) + (f": {failure.getTraceback()}" if failure else ""))

    globalLogPublisher.addObserver(observe)
    try:
        yield errors
        gc.collect()  # a failure without errback is logged when it is collected
    finally:
        globalLogPublisher.removeObserver(observe)
    assert errors == []


def _is_of_garbage(failure: Failure) -> bool:
    """True for a failure that can only happen if its coroutine and its waiter are collected together."""
    return failure.check(RuntimeError) is not None and failure.getErrorMessage() == COLLECTED
