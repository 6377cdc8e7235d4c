"""Detection of followers that stop fetching."""

from __future__ import annotations

from typing import Any

from leading_scene import LAG_S, SECOND, THIRD, Leading, append, fetch

from kreplica.replication.leader.lag_check_timer import LagCheckTimer


def watch_of(leading: Leading, *partitions: Any) -> LagCheckTimer:
    clock: Any = leading.clock
    return LagCheckTimer(clock, partitions, LAG_S / 2)


def pass_time(leading: Leading, seconds: float) -> None:
    """Advance the clock from one delayed call to the next."""
    for _ in range(round(seconds * 10)):
        leading.clock.advance(0.1)


def test_silent_follower_is_detected_in_time() -> None:
    """A lagging follower is detected between 1 and 1.5 times the limit after it fell behind."""
    leading = Leading()
    partition = leading.partition()
    watch = watch_of(leading, partition)
    watch.start()
    for replica in (SECOND, THIRD):
        fetch(partition, replica, 0)
    pass_time(leading, 10 * LAG_S)
    append(partition)
    pass_time(leading, LAG_S / 2 - 0.2)
    assert leading.proposed == [], "no records were appended for a long time, so the follower is not late"
    pass_time(leading, LAG_S + 0.5)
    assert leading.proposed != []
    assert partition.leader_state is not None
    proposal = partition.leader_state.proposal()
    assert proposal is not None
    assert proposal.isr == (1,)
    watch.stop()


def test_stop_leaves_no_timer() -> None:
    leading = Leading()
    watch = watch_of(leading, leading.partition())
    watch.start()
    pass_time(leading, LAG_S)
    watch.stop()
    watch.stop()
    assert not leading.clock.getDelayedCalls()


def test_partition_that_stops_leading_is_skipped() -> None:
    """The partition may lose leadership during the check."""
    leading = Leading()
    partition = leading.partition()
    watch = watch_of(leading, partition)
    watch.start()
    partition.stop()
    pass_time(leading, 3 * LAG_S)
    assert leading.proposed == []
    watch.stop()
