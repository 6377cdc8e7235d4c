"""Log lines about rejected EndTxn requests."""

from collections.abc import Iterator

import pytest
from transactions_scene import P0, Scene
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from kreplica.errors import ErrorCode
from kreplica.transactions.rejected_end_log import LINES_PER_INTERVAL_MAX
from kreplica.transactions.states import Identity


@pytest.fixture
def lines() -> Iterator[list[str]]:
    events: list[str] = []

    def observe(event: LogEvent) -> None:
        if "rejected" in (text := formatEvent(event)):
            events.append(text)

    globalLogPublisher.addObserver(observe)
    yield events
    globalLogPublisher.removeObserver(observe)


def test_refused_end_is_logged_with_the_state(lines):
    """The log line contains the state, both identities and the requested outcome."""
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    assert scene.end(producer, commits=True).code is ErrorCode.NONE
    assert not lines
    assert scene.end(producer, commits=False).code is ErrorCode.INVALID_TXN_STATE
    [line] = lines
    for part in ("INVALID_TXN_STATE", "CompleteCommit", "requested abort", f"id {producer.producer_id} epoch 0"):
        assert part in line
    scene.end(Identity(999, 0), commits=True)
    assert "INVALID_PRODUCER_ID_MAPPING" in lines[-1]


def test_retries_are_not_logged(lines):
    """Retriable errors, for example during a pending write, are not logged."""
    scene = Scene()
    producer = scene.begin()
    scene.add(producer, P0)
    scene.send_end(producer, commits=True)
    scene.send_end(producer, commits=True)
    assert scene.answers[-1].code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not lines


def test_repeated_requests_do_not_fill_the_log(lines):
    """Above the limit per interval, only the number of refused requests is logged."""
    scene = Scene()
    producer = scene.begin()
    for _ in range(LINES_PER_INTERVAL_MAX + 5):
        scene.send_end(producer, commits=True)
    assert len(lines) == LINES_PER_INTERVAL_MAX
    scene.clock.advance(1.0)
    scene.send_end(producer, commits=True)
    assert lines[LINES_PER_INTERVAL_MAX].startswith("5 more")
    assert len(lines) == LINES_PER_INTERVAL_MAX + 2
