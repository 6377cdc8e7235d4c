"""The rules for the ISR, one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leading_scene import leadership

from kreplica.model import NO_BROKER_EPOCH
from kreplica.replication.leader import isr_membership
from kreplica.replication.leader.followers import UNKNOWN_OFFSET, Progress, followers_in_epoch

offsets = st.integers(0, 20)
replicas = st.lists(st.integers(1, 6), unique=True)


def progress(log_end_offset: int = UNKNOWN_OFFSET, broker_epoch: int = 7) -> Progress:
    known = Progress(leader_epoch=1, caught_up_s=0.0)
    if log_end_offset != UNKNOWN_OFFSET:
        known.fetched(broker_epoch, log_end_offset, leader_end_offset=100, now_s=0.0)
    return known


@given(offsets, offsets, offsets)
def test_follower_joins_with_all_committed_records(end: int, high_watermark: int, epoch_start: int) -> None:
    """The follower needs all records that this leader or earlier leaders may have committed."""
    joins = isr_membership.may_join(progress(end), high_watermark=high_watermark, epoch_start_offset=epoch_start)
    assert joins is (end >= high_watermark and end >= epoch_start)


def test_follower_without_a_fetch_in_this_epoch_does_not_join() -> None:
    """The follower's log may contain records that this leader does not have, even if the leader's log is empty."""
    assert not isr_membership.may_join(progress(), high_watermark=0, epoch_start_offset=0)


def test_follower_without_a_broker_epoch_does_not_join() -> None:
    """A restart may have truncated the follower's log."""
    nameless = progress(9, broker_epoch=NO_BROKER_EPOCH)
    assert not isr_membership.may_join(nameless, high_watermark=0, epoch_start_offset=0)


@pytest.mark.parametrize(("registered", "current"), [(7, True), (8, False), (6, False), (None, False)])
def test_only_the_registered_incarnation_joins(registered: int | None, current: bool) -> None:
    """A replaced process, or one whose session ended, may not join."""
    assert isr_membership.is_current_incarnation(7, registered) is current


@given(replicas, replicas)
def test_union_contains_each_replica_once(isr: list[int], proposed: list[int]) -> None:
    """All replicas that may be in the ISR are included, in a fixed order."""
    union = isr_membership.union(isr, proposed)
    assert sorted(union) == sorted({*isr, *proposed})
    assert union[: len(isr)] == tuple(isr)


def test_follower_that_keeps_pace_never_lags() -> None:
    """Under load, each of its fetches reaches the leader's log end offset at the time of its previous fetch."""
    known = Progress(leader_epoch=1, caught_up_s=0.0)
    leader_end = 0
    for now_s in range(1, 100):
        known.fetched(7, leader_end, leader_end_offset=leader_end + 10, now_s=now_s)
        leader_end += 10
        assert not isr_membership.is_lagging(known, now_s, lag_s_max=1.5)


def test_slow_follower_lags_although_it_fetches() -> None:
    known = Progress(leader_epoch=1, caught_up_s=0.0)
    for now_s in range(1, 40):
        known.fetched(7, 10 * now_s, leader_end_offset=20 * now_s, now_s=now_s)
    assert isr_membership.is_lagging(known, 40, lag_s_max=30)
    assert not isr_membership.is_lagging(known, 29, lag_s_max=30)


def test_only_followers_in_the_isr_lag() -> None:
    """Neither the leader, nor replicas outside the ISR, nor caught-up replicas are lagging."""
    late, whole = progress(5), progress(100)
    found = isr_membership.find_lagging(
        [1, 2, 3], {2: late, 3: whole, 4: late}, leader_end_offset=100, now_s=1000.0, lag_s_max=30.0
    )
    assert found == (2,)


def test_lag_starts_with_the_next_record() -> None:
    """A follower of an idle partition that was silent is not lagging as soon as the next record arrives."""
    known = progress(100)
    assert isr_membership.find_lagging([2], {2: known}, leader_end_offset=100, now_s=5000.0, lag_s_max=30.0) == ()
    assert isr_membership.find_lagging([2], {2: known}, leader_end_offset=101, now_s=5015.0, lag_s_max=30.0) == ()
    assert isr_membership.find_lagging([2], {2: known}, leader_end_offset=101, now_s=5030.5, lag_s_max=30.0) == (2,)


def test_new_epoch_discards_progress() -> None:
    """Progress of an earlier leader epoch is discarded; within an epoch it is kept."""
    first = followers_in_epoch({}, leadership(5), 1, 0.0)
    first[2].fetched(7, 50, leader_end_offset=50, now_s=0.0)
    same = followers_in_epoch(first, leadership(5, replicas=(1, 2, 4)), 1, 9.0)
    assert same[2] is first[2]
    assert list(same) == [2, 4]
    later = followers_in_epoch(first, leadership(6), 1, 9.0)
    assert [known.log_end_offset for known in later.values()] == [UNKNOWN_OFFSET, UNKNOWN_OFFSET]
