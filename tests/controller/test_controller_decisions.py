"""What the controller decides from what it knows, without ZooKeeper or brokers."""

from uuid import UUID

from kreplica.controller.context import ControllerContext
from kreplica.controller.decisions import initial_elections, offline_elections, replica_removals
from kreplica.model import NO_LEADER, BrokerRegistration, LeaderAndIsr, TopicAssignment, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def context(live, partitions, leadership=()):
    made = ControllerContext(controller_epoch=5, epoch_znode_version=5)
    made.brokers = {broker: BrokerRegistration(broker, (), epoch=1) for broker in live}
    made.topics["t"] = TopicAssignment("t", UUID(int=7), partitions)
    made.leadership.update(leadership)
    return made


def never(_):
    return False


def test_first_leaders():
    """Partitions with a live replica get one in epoch 0 of the leader and ours of the controller; others wait."""
    changes = initial_elections(context([2], {0: (1, 2), 1: (1,)}), [P0, P1])
    assert [(c.partition, c.previous, c.state) for c in changes] == [(P0, None, LeaderAndIsr(2, 0, (2,), 5))]


def test_new_leader_gets_the_next_epoch():
    """Epochs only grow, and the write is conditional on the znode version that was read."""
    old = LeaderAndIsr(1, 3, (1, 2), 4, partition_epoch=9)
    (change,) = offline_elections(context([2], {0: (1, 2)}, {P0: old}), [P0], never)
    assert change.state == LeaderAndIsr(2, 4, (2,), 5, partition_epoch=9)
    assert change.previous is old


def test_nobody_may_lead():
    """The in-sync set is kept, so that one of it can lead when it comes back; said once, it is not said again."""
    old = LeaderAndIsr(1, 3, (1,), 4)
    known = context([2], {0: (1, 2)}, {P0: old})
    (change,) = offline_elections(known, [P0], never)
    assert change.state == LeaderAndIsr(NO_LEADER, 4, (1,), 5)
    known.leadership[P0] = change.state
    assert offline_elections(known, [P0], never) == []


def test_dead_followers_leave_the_in_sync_set():
    """Only where they do not lead and somebody stays; the leader's epoch grows."""
    known = context(
        [1],
        {0: (1, 2), 1: (2, 1)},
        {P0: LeaderAndIsr(1, 0, (1, 2), 1), P1: LeaderAndIsr(2, 0, (2, 1), 1)},
    )
    (change,) = replica_removals(known, {2})
    assert change.partition == P0
    assert change.state == LeaderAndIsr(1, 1, (1,), 5)
