"""Warnings logged by a follower whose leader rejects its fetches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from twisted.logger import LogLevel, capturedLogs

from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.replication.follower.follower_state import WARNED_FAILURES, FollowerState, NextStep


def warnings(state: FollowerState, code: ErrorCode, count: int) -> int:
    """Return the number of warnings caused by a number of responses with an error."""
    with capturedLogs() as events:
        for _ in range(count):
            assert state.process_row({"error_code": int(code)}, 0) is NextStep.LATER
    return sum(event["log_level"] >= LogLevel.warn for event in events)


def new_state() -> FollowerState:
    partition: Any = SimpleNamespace(
        topic_partition=TopicPartition("t", 0),
        topic_id=UUID(int=1),
        leadership=SimpleNamespace(leader=2, leader_epoch=3),
    )
    return FollowerState(partition, 1000)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_new_topic_that_its_leader_does_not_know_yet(code: ErrorCode) -> None:
    """A leader may learn of a new topic later than its followers, so only repeated errors cause a warning."""
    state = new_state()
    assert warnings(state, code, WARNED_FAILURES - 1) == 0
    assert warnings(state, code, 2) == 1


def test_other_errors() -> None:
    """An error that does not disappear by itself causes one warning at once."""
    assert warnings(new_state(), ErrorCode.KAFKA_STORAGE_ERROR, 3) == 1
