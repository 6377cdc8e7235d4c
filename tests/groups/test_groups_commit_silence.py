"""The time since which a group has committed nothing although there was lag."""

from __future__ import annotations

from typing import Any

import pytest

from kreplica.groups.commit_silence import no_commit_since_ms
from kreplica.groups.lag import Status
from kreplica.groups.lag_tracking import GroupLag, PartitionLag
from kreplica.groups.records import CommittedOffset, OffsetKey


class FakeTracker:
    """Returns when each partition had no lag, by its number."""

    def __init__(self, caught_up_ms: dict[int, int]) -> None:
        self._caught_up_ms = caught_up_ms

    def caught_up_ms(self, key: OffsetKey) -> int:
        return self._caught_up_ms.get(key.partition, -1)


OK, STOPPED = Status.OK, Status.STOPPED
CASES = [
    ("Empty", [(100, 5, OK), (300, 0, OK)], {}, 100),
    ("Empty", [(100, 5, OK), (300, 2, OK)], {}, 300),
    ("Empty", [(100, 5, STOPPED), (300, 2, OK)], {}, 100),
    ("Empty", [(100, 5, OK)], {0: 200}, 200),
    ("Empty", [(100, 0, OK)], {}, None),
    ("Empty", [(None, 5, None)], {}, None),
    ("Stable", [(100, 5, OK)], {}, None),
    ("Stable", [(100, 5, STOPPED), (300, 2, OK)], {}, 100),
]
"""State; for each partition, the time of the commit, lag and status; the times without lag; the result."""


@pytest.mark.parametrize(("state", "rows", "caught_up_ms", "expected"), CASES)
def test_time_without_commits(state: str, rows: list[Any], caught_up_ms: dict[int, int], expected: int | None) -> None:
    """The time is that of the last commit of a lagging partition, or of the last sample without lag if later."""
    partitions = [
        PartitionLag("t", number, None if at_ms is None else CommittedOffset(3, -1, "", at_ms), 9, lag, status)
        for number, (at_ms, lag, status) in enumerate(rows)
    ]
    tracker: Any = FakeTracker(caught_up_ms)
    assert no_commit_since_ms(tracker, GroupLag("g", state, 0, OK, partitions)) == expected
