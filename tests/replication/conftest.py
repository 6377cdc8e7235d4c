"""Fixtures shared by the replication tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import ILogObserver, globalLogPublisher
from zope.interface import implementer


@pytest.fixture
def caplog_events() -> Iterator[list[dict[str, Any]]]:
    """Collect all log events of a test."""
    events: list[dict[str, Any]] = []

    @implementer(ILogObserver)
    def observe(event: Any) -> None:
        events.append(event)

    globalLogPublisher.addObserver(observe)
    yield events
    globalLogPublisher.removeObserver(observe)
