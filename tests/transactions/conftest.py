"""Fails every test during which an unexpected failure is logged."""

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import globalLogPublisher


@pytest.fixture(autouse=True)
def fail_on_logged_failures() -> Iterator[None]:
    failures: list[Any] = []

    def record_failure(event: Any) -> None:
        if "log_failure" in event:
            failures.append(event["log_failure"])

    globalLogPublisher.addObserver(record_failure)
    yield
    globalLogPublisher.removeObserver(record_failure)
    assert not failures, failures
