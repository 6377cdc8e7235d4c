"""Makes a test fail if a coordinator logs an unexpected failure."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import globalLogPublisher


@pytest.fixture(autouse=True)
def failures_logged() -> Iterator[None]:
    failures: list[Any] = []

    def note(event: Any) -> None:
        if "log_failure" in event:
            failures.append(event["log_failure"])

    globalLogPublisher.addObserver(note)
    yield
    globalLogPublisher.removeObserver(note)
    assert not failures, failures
