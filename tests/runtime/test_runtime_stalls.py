"""Stalls of the event loop are measured, and logged with their cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from kreplica.runtime.stalls import INTERVAL_S, LOG_INTERVAL_S, UNKNOWN, StallWatch


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    globalLogPublisher.addObserver(events.append)  # type: ignore[arg-type]
    yield events
    globalLogPublisher.removeObserver(events.append)  # type: ignore[arg-type]


def stall(clock: Clock, seconds: float) -> None:
    """Block the event loop so that the watch's timer is late by this time."""
    clock.advance(INTERVAL_S + seconds)


def test_stall_is_logged_with_its_longest_work(lines: list[dict[str, Any]]) -> None:
    """The log line contains the duration and the request."""
    clock = Clock()
    watch = StallWatch(clock, threshold_s=0.1)
    watch.start()
    watch.note("Heartbeat", 0.03)
    watch.note("Metadata v4 (9000000 bytes)", 0.4)
    watch.note("Fetch", 0.05)
    stall(clock, 0.5)
    assert [(line["duration_ms"], line["cause"]) for line in lines] == [(500, "Metadata v4 (9000000 bytes)")]
    assert [entry.cause for entry in watch.recent] == ["Metadata v4 (9000000 bytes)"]
    watch.stop()
    assert clock.getDelayedCalls() == []


def test_short_delays_are_counted_and_not_logged(lines: list[dict[str, Any]]) -> None:
    """Short delays are counted in the distribution."""
    clock = Clock()
    watch = StallWatch(clock, threshold_s=0.1)
    watch.start()
    stall(clock, 0.05)
    assert lines == []
    assert sum(watch.counts) == 1
    assert not watch.recent
    assert (watch.stalls, watch.longest_s) == (0, 0.0)


def test_log_lines_are_limited(lines: list[dict[str, Any]]) -> None:
    """At most one line is logged per ``LOG_INTERVAL_S``; the next line contains the number of omitted ones."""
    clock = Clock()
    watch = StallWatch(clock, threshold_s=0.1)
    watch.start()
    for _ in range(4):
        stall(clock, 0.2)
    stall(clock, LOG_INTERVAL_S)
    assert [line["unlogged"] for line in lines] == [0, 3]
    assert {line["cause"] for line in lines} == {UNKNOWN}
    assert len(watch.recent) == watch.stalls == 5
    assert watch.stalled_s == pytest.approx(4 * 0.2 + LOG_INTERVAL_S)
    assert watch.longest_s == pytest.approx(LOG_INTERVAL_S)
    assert watch.ago_s(watch.recent[-2]) == pytest.approx(LOG_INTERVAL_S + INTERVAL_S)
