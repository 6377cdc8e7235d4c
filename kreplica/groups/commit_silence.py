"""Since when a group has committed nothing although there was lag."""

from __future__ import annotations

from kreplica.groups.classic.states import State
from kreplica.groups.lag import Status
from kreplica.groups.lag_tracking import GroupLag, LagTracker
from kreplica.groups.records import OffsetKey


def no_commit_since_ms(tracker: LagTracker, lag: GroupLag) -> int | None:
    """Return the time since which a group has committed nothing although there was lag.

    The time is that of the last commit, or of the last sample without lag if that is later. It is the latest such time
    of the stopped partitions, or of all partitions with lag if the group has no members.

    :return: milliseconds since 1970; None if no partition has stopped and the group has members or no lag.
    """
    behind = [(row, row.committed) for row in lag.partitions if row.lag and row.committed is not None]
    rows = [each for each in behind if each[0].status is Status.STOPPED]
    if not rows and lag.state_name == State.EMPTY.value:
        rows = behind
    times_ms = (
        max(committed.commit_timestamp_ms, tracker.caught_up_ms(OffsetKey(lag.group_id, row.topic, row.partition)))
        for row, committed in rows
    )
    return max(times_ms, default=None)
