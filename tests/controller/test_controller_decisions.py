"""The controller's decisions on state changes, without ZooKeeper or brokers."""

from dataclasses import replace
from uuid import UUID

import pytest

from kreplica.controller.decisions.state_changes import (
    TopicRules,
    controlled_shutdown_changes,
    has_intact_logs,
    initial_elections,
    repairs,
    unclean_elections,
    without_unclean,
)
from kreplica.controller.state.context import ControllerContext
from kreplica.model import NO_LEADER, BrokerRegistration, LeaderAndIsr, TopicAssignment, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def context(live, partitions, leadership=()):
    made = ControllerContext(controller_epoch=5, epoch_znode_version=5)
    for broker in live:
        made.add_broker(BrokerRegistration(broker, (), epoch=1))
    made.topics["t"] = TopicAssignment("t", UUID(int=7), partitions)
    made.leadership.update(leadership)
    return made


def strict(_):
    return TopicRules(unclean_allowed=False, min_insync_replicas=2)


def test_first_leaders():
    """New partitions with a live replica get a leader in epoch 0; other partitions wait."""
    changes = initial_elections(context([2], {0: (1, 2), 1: (1,)}), [P0, P1])
    assert [(c.partition, c.previous, c.state) for c in changes] == [(P0, None, LeaderAndIsr(2, 0, (2,), 5))]


def test_new_leader_gets_the_next_epoch():
    """Leader epochs increase, and the write is conditional on the znode version that was read."""
    old = LeaderAndIsr(1, 3, (1, 2, 3), 4, partition_epoch=9)
    (change,) = repairs(context([2, 3], {0: (1, 2, 3)}, {P0: old}), [P0], strict)
    assert change.state == LeaderAndIsr(2, 4, (2, 3), 5, partition_epoch=9)
    assert change.previous is old


# (live, (leader, isr, eligible) before, bounced, unclean, (leader, isr, eligible) after; None: no change)
REPAIRS = {
    "all is well": ([1, 2, 3], (1, (1, 2, 3), ()), (), (), None),
    "a follower died": ([1, 3], (1, (1, 2, 3), ()), (), (), (1, (1, 3), ())),
    "a follower died that was not in sync": ([1, 2], (1, (1, 2), ()), (), (), None),
    "the leader died": ([2, 3], (1, (1, 2, 3), ()), (), (), (2, (2, 3), ())),
    "leader and follower died at once": ([3], (1, (1, 2, 3), ()), (), (), (3, (3,), (1, 2))),
    "the last in sync died": ([2, 3], (1, (1,), ()), (), (), (NO_LEADER, (1,), ())),
    "the last in sync died, others are eligible": ([2, 3], (1, (1,), (3,)), (), (), (3, (3,), (1,))),
    "an offline partition is not changed again": ([2, 3], (NO_LEADER, (1,), ()), (), (), None),
    "the last in sync is back": ([1, 2], (NO_LEADER, (1,), ()), (), (), (1, (1,), ())),
    "an in-sync follower is back, whole": ([1, 2, 3], (1, (1, 2, 3), ()), (2,), (), None),
    "the leader bounced, whole": ([1, 2, 3], (1, (1, 2, 3), ()), (1,), (), (2, (1, 2, 3), ())),
    "the only replica in sync bounced, whole": ([1, 2], (1, (1,), ()), (1,), (), (1, (1,), ())),
    "a follower bounced, unclean": ([1, 2, 3], (1, (1, 2, 3), ()), (2,), (2,), (1, (1, 3), ())),
    "it is not eligible either": ([1, 2, 3], (1, (1, 2), ()), (2,), (2,), (1, (1,), ())),
    "an eligible one came back unclean": ([1, 2, 3], (1, (1,), (2, 3)), (), (2,), (1, (1,), (3,))),
    "the leader bounced, unclean": ([1, 2, 3], (1, (1, 2, 3), ()), (1,), (1,), (2, (2, 3), ())),
    "the last in sync is back unclean, eligible ones live": ([1, 2], (NO_LEADER, (1,), (2,)), (), (1,), (2, (2,), ())),
    "the last in sync is back unclean, eligible ones do not live": (
        [1],
        (NO_LEADER, (1,), (2, 3)),
        (),
        (1,),
        (NO_LEADER, (2, 3), ()),
    ),
    "the last in sync is back unclean, and no other replica holds more": (
        [1, 2],
        (NO_LEADER, (1,), ()),
        (),
        (1,),
        (1, (1,), ()),
    ),
    "all are back unclean at once": ([1, 2, 3], (2, (1, 2, 3), ()), (1, 2, 3), (1, 2, 3), (2, (2,), ())),
}


@pytest.mark.parametrize("case", REPAIRS)
def test_decisions_after_broker_failures_and_restarts(case):
    """Decisions with three replicas and min.insync.replicas of two."""
    live, before, bounced, unclean, after = REPAIRS[case]
    leader, isr, eligible = before
    old = LeaderAndIsr(leader, 3, isr, 4, partition_epoch=9, eligible_leader_replicas=eligible)
    changes = repairs(context(live, {0: (1, 2, 3)}, {P0: old}), [P0], strict, bounced=bounced, unclean=unclean)
    if after is None:
        assert changes == []
        return
    (change,) = changes
    leader, isr, eligible = after
    assert change.state == LeaderAndIsr(leader, 4, isr, 5, partition_epoch=9, eligible_leader_replicas=eligible)
    assert not change.only_fences


def test_a_leader_with_an_unclean_follower_gets_a_new_partition_epoch():
    """The state is rewritten unchanged, so that an ISR change based on its old version fails."""
    old = LeaderAndIsr(1, 3, (1, 3), 4, partition_epoch=9)
    (change,) = repairs(context([1, 2, 3], {0: (1, 2, 3)}, {P0: old}), [P0], strict, bounced=[2], unclean=[2])
    assert change.state == old
    assert change.only_fences


def test_unclean_elections():
    """An unclean election requires permission or a request, and no other candidate; no replica is eligible after it."""
    old = LeaderAndIsr(NO_LEADER, 3, (1,), 4, eligible_leader_replicas=())
    known = context([2, 3], {0: (1, 2, 3)}, {P0: old})
    assert repairs(known, [P0], strict) == []
    (allowed,) = repairs(known, [P0], lambda topic: strict(topic)._replace(unclean_allowed=True))
    (asked,) = unclean_elections(known, [P0], strict)
    assert allowed == asked
    assert asked.state == LeaderAndIsr(2, 4, (2,), 5)
    known.leadership[P0] = replace(old, eligible_leader_replicas=(3,))
    (clean,) = unclean_elections(known, [P0], strict)
    assert clean.state == LeaderAndIsr(3, 4, (3,), 5, eligible_leader_replicas=(1,))


def test_replicas_in_a_failed_directory_count_as_dead():
    """The replicas leave the ISR and lose leadership, even though their broker is live."""
    known = context(
        [1, 2, 3],
        {0: (1, 2, 3), 1: (2, 1, 3)},
        {P0: LeaderAndIsr(1, 3, (1, 2, 3), 4), P1: LeaderAndIsr(2, 3, (1, 2, 3), 4)},
    )
    known.failed_replicas[1] = {P0}
    (change,) = repairs(known, [P0, P1], strict)
    assert (change.partition, change.state) == (P0, LeaderAndIsr(2, 4, (2, 3), 5))
    assert known.offline_replicas(P0) == (1,)


# (stopping, (leader, isr) before, (leader, isr, eligible) after; None: no change)
SHUTDOWNS = {
    "it leads": ([1], (1, (1, 2, 3)), (2, (2, 3), ())),
    "it follows": ([2], (1, (1, 2, 3)), (1, (1, 3), ())),
    "it follows, out of sync": ([2], (1, (1, 3)), None),
    "too few are left to commit": ([1], (1, (1, 2)), (2, (2,), (1,))),
    "no other replica can lead": ([1], (1, (1,)), None),
    "all others are stopping too": ([1, 2, 3], (1, (1, 2, 3)), None),
    "no leader, other replicas may return": ([2], (NO_LEADER, (1, 2)), (NO_LEADER, (1,), (2,))),
    "no leader, it is the last": ([2], (NO_LEADER, (2,)), None),
}


@pytest.mark.parametrize("case", SHUTDOWNS)
def test_decisions_for_a_controlled_shutdown(case):
    """Other replicas become leaders and the broker leaves the ISRs, unless no other replica can lead."""
    stopping, (leader, isr), after = SHUTDOWNS[case]
    known = context([1, 2, 3], {0: (1, 2, 3)}, {P0: LeaderAndIsr(leader, 3, isr, 4)})
    known.shutting_down.update(stopping)
    states = [change.state for change in controlled_shutdown_changes(known, [P0], strict)]
    if after is None:
        assert states == []
    else:
        assert states == [LeaderAndIsr(after[0], 4, after[1], 5, eligible_leader_replicas=after[2])]


def test_a_broker_that_is_stopping_is_not_elected():
    """A broker in shutdown is not elected even if no other replica is live (KIP-841)."""
    known = context([2], {0: (1, 2)}, {P0: LeaderAndIsr(1, 3, (1, 2), 4)})
    known.shutting_down.add(2)
    (change,) = repairs(known, [P0], strict)
    assert change.state.leader == NO_LEADER
    known.add_broker(BrokerRegistration(2, (), epoch=9))
    (change,) = repairs(known, [P0], strict)
    assert change.state.leader == 2, "it came back"


@pytest.mark.parametrize(
    ("epoch", "intact_since", "known", "whole"),
    [
        (10, -1, 10, True),
        (20, -1, 10, False),
        (20, 10, 10, True),
        (30, 10, 20, True),
        (30, 20, 10, False),
        (20, -1, -1, False),
        (20, 5, -1, False),
    ],
)
def test_a_chain_of_clean_restarts_loses_nothing(epoch, intact_since, known, whole):
    """A log is complete if a chain of clean restarts reaches back to the last known incarnation."""
    assert has_intact_logs(BrokerRegistration(1, (), epoch=epoch, intact_since=intact_since), known) is whole


@pytest.mark.parametrize("leader", [NO_LEADER, 1, 2])
def test_one_replica_always_stays_in_sync(leader):
    """If all replicas may have lost records, the last leader stays, because no other replica holds more."""
    isr, eligible = without_unclean(LeaderAndIsr(leader, 0, (2, 1), 0, eligible_leader_replicas=(3,)), [1, 2, 3])
    assert (isr, eligible) == ((leader if leader > 0 else 2,), ())
