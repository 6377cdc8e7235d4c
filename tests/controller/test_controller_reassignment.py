"""Replicas that move, as an administrator, the brokers and ZooKeeper see it."""

from __future__ import annotations

import pytest

from kreplica.cluster import documents, znodes
from kreplica.controller.event_types import MovesAsked, ReassignmentAsked
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from tests.support.controller_scene import ControllerScene

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def scene_with(partitions: dict[int, tuple[int, ...]], *, brokers: int = 6) -> ControllerScene:
    scene = ControllerScene(brokers=brokers)
    scene.start()
    scene.make_topic("t", partitions)
    scene.forget_told()
    return scene


def move(scene: ControllerScene, targets: dict[TopicPartition, tuple[int, ...] | None]) -> dict[TopicPartition, int]:
    """Ask for it; the error codes, 0 for none."""
    results = scene.ask(ReassignmentAsked(targets))
    return {partition: 0 if error is None else int(error.code) for partition, error in results.items()}


def znode(scene: ControllerScene, topic: str = "t"):
    data, _ = scene.run(scene.zookeeper.get_data(znodes.topic_path(topic)))
    return documents.decode_topic(topic, data)


def in_sync(scene: ControllerScene, partition: TopicPartition, *isr: int) -> None:
    """The leader takes these into the in-sync set, and tells the controller."""
    leader = scene.brokers[scene.state(*partition).leader]
    scene.run(leader.write_isr(partition, isr))
    scene.settle()


def deleted(scene: ControllerScene, broker: int) -> list[TopicPartition]:
    """What that broker was told to delete."""
    commands = scene.brokers[broker].told_of("StopReplica")
    return [p for told in commands for p, row in told.partitions.items() if row["delete_partition"]]


def test_replicas_move_and_records_stay():
    """The new replicas come first, the old ones go when those are in sync, and the leader is one of the new."""
    scene = scene_with({0: (1, 2, 3)})
    assert move(scene, {P0: (4, 5, 6)}) == {P0: 0}
    assignment = znode(scene)
    assert assignment.partitions == {0: (4, 5, 6, 1, 2, 3)}
    assert (assignment.adding, assignment.removing) == ({0: (4, 5, 6)}, {0: (1, 2, 3)})
    assert scene.state("t", 0).leader_epoch == 1
    (told,) = scene.brokers[4].told_of("LeaderAndIsr")
    assert told.partitions[P0]["is_new"]
    assert told.partitions[P0]["adding_replicas"] == [4, 5, 6]
    (told,) = scene.brokers[1].told_of("LeaderAndIsr")
    assert not told.partitions[P0]["is_new"]

    in_sync(scene, P0, 1, 2, 3, 4, 5)
    assert znode(scene).partitions == {0: (4, 5, 6, 1, 2, 3)}, "6 is not in sync yet"
    assert deleted(scene, 1) == []
    in_sync(scene, P0, 1, 2, 3, 4, 5, 6)
    state = scene.state("t", 0)
    assert (state.leader, state.isr, state.leader_epoch) == (4, (4, 5, 6), 2)
    assert znode(scene).partitions == {0: (4, 5, 6)}
    assert (znode(scene).adding, znode(scene).removing) == ({}, {})
    for broker in (1, 2, 3):
        assert deleted(scene, broker) == [P0]
    last = scene.brokers[2].told_of("UpdateMetadata")[-1]
    assert last.partitions[P0]["replicas"] == [4, 5, 6]


def test_a_leader_that_stays_keeps_leading():
    """One replica of three moves: nobody's leadership changes hands."""
    scene = scene_with({0: (1, 2, 3)})
    move(scene, {P0: (1, 2, 4)})
    in_sync(scene, P0, 1, 2, 3, 4)
    assert scene.state("t", 0).leader == 1
    assert scene.state("t", 0).isr == (1, 2, 4)
    assert deleted(scene, 3) == [P0]


def test_more_and_fewer_replicas():
    """A change of the replication factor is a move as any other."""
    scene = scene_with({0: (1,), 1: (1, 2, 3)})
    assert move(scene, {P0: (1, 2, 3), P1: (3,)}) == {P0: 0, P1: 0}
    scene.settle()
    assert znode(scene).partitions == {0: (1, 2, 3), 1: (3,)}, "what is in sync goes at once"
    assert scene.state("t", 1).leader == 3
    in_sync(scene, P0, 1, 2, 3)
    assert znode(scene).adding == {}


def test_another_order_is_only_another_preferred_leader():
    """Nothing is copied, no epoch changes; clients see the new order."""
    scene = scene_with({0: (1, 2, 3)})
    assert move(scene, {P0: (3, 1, 2)}) == {P0: 0}
    assert znode(scene).partitions == {0: (3, 1, 2)}
    assert scene.state("t", 0).leader_epoch == 0
    scene.settle()
    assert scene.brokers[1].told_of("UpdateMetadata")[-1].partitions[P0]["replicas"] == [3, 1, 2]
    assert not scene.brokers[1].told_of("LeaderAndIsr")


def test_a_move_to_where_it_is_is_done_at_once():
    """It is no error, and writes nothing."""
    scene = scene_with({0: (1, 2, 3)})
    before = scene.run(scene.zookeeper.exists(znodes.topic_path("t"))).version
    assert move(scene, {P0: (1, 2, 3)}) == {P0: 0}
    assert scene.run(scene.zookeeper.exists(znodes.topic_path("t"))).version == before


def test_cancelled_before_anybody_caught_up():
    """The replicas are the old ones at once, and those that were coming delete what they have."""
    scene = scene_with({0: (1, 2, 3)})
    move(scene, {P0: (4, 5, 6)})
    scene.settle()
    assert move(scene, {P0: None}) == {P0: 0}
    scene.settle()
    assert sorted(znode(scene).partitions[0]) == [1, 2, 3]
    assert (znode(scene).adding, znode(scene).removing) == ({}, {})
    assert deleted(scene, 4) == [P0]
    assert scene.state("t", 0).isr == (1, 2, 3)
    assert move(scene, {P0: None}) == {P0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}


def test_cancelled_when_a_new_replica_leads_already():
    """Leadership goes back to the old replicas, and no in-sync replica of them is lost."""
    scene = scene_with({0: (1, 2, 3)})
    move(scene, {P0: (4, 5, 6)})
    in_sync(scene, P0, 1, 2, 3, 4, 5)
    scene.brokers[1].kill()
    scene.await_expiry()
    assert scene.state("t", 0).leader == 4
    move(scene, {P0: None})
    scene.settle()
    state = scene.state("t", 0)
    assert state.leader in (2, 3)
    assert sorted(state.isr) == [2, 3]
    assert sorted(znode(scene).partitions[0]) == [1, 2, 3]


def test_a_cancelled_move_never_drops_the_only_replicas_in_sync():
    """Where the old replicas are not in sync, the new ones stay until two of the old ones are."""
    scene = scene_with({0: (1, 2, 3)})
    move(scene, {P0: (4, 5, 6)})
    in_sync(scene, P0, 1, 4, 5)
    scene.brokers[1].kill()
    scene.await_expiry()
    assert scene.state("t", 0).isr == (4, 5)
    assert move(scene, {P0: None}) == {P0: 0}
    scene.settle()
    assert scene.state("t", 0).isr == (4, 5)
    in_sync(scene, P0, 2, 4, 5)
    assert scene.state("t", 0).isr == (2, 4, 5), "with one alone nothing could be committed"
    in_sync(scene, P0, 2, 3, 4, 5)
    assert scene.state("t", 0).isr == (2, 3)
    assert scene.state("t", 0).leader in (2, 3)


def test_a_move_is_replaced_by_another():
    """Who was coming and is not wanted any more goes; cancelled then, it is back where it was before both."""
    scene = scene_with({0: (1, 2, 3)})
    move(scene, {P0: (4, 5, 6)})
    in_sync(scene, P0, 1, 2, 3, 4)
    assert move(scene, {P0: (1, 2, 5)}) == {P0: 0}
    scene.settle()
    assert deleted(scene, 6) == [P0], "never in sync: of no use"
    assert deleted(scene, 4) == [], "in sync: it stays until the target is"
    assert znode(scene).partitions == {0: (1, 2, 5, 4, 3)}
    move(scene, {P0: None})
    scene.settle()
    assert sorted(znode(scene).partitions[0]) == [1, 2, 3]
    assert deleted(scene, 4) == deleted(scene, 5) == [P0]


@pytest.mark.parametrize(
    ("partition", "target", "code"),
    [
        (P0, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (P0, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (P0, (1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (P0, (1, 99), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (P0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (P1, (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("nobody", 0), (1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("nobody", 0), None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_cannot_be_is_refused(partition, target, code):
    """Each partition is answered for itself; others of the request move."""
    scene = scene_with({0: (1, 2, 3)})
    assert move(scene, {partition: target}) == {partition: code}
    assert znode(scene).partitions == {0: (1, 2, 3)}


def test_one_slow_partition_does_not_hold_up_another():
    """Each completes by itself."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    move(scene, {P0: (3, 4), P1: (3, 4)})
    in_sync(scene, P1, 1, 2, 3, 4)
    assert znode(scene).partitions == {0: (3, 4, 1, 2), 1: (3, 4)}


def test_a_broker_that_comes_back_is_waited_for():
    """A target that dies while it catches up suspends the move; back and in sync, it ends."""
    scene = scene_with({0: (1, 2)})
    move(scene, {P0: (3, 4)})
    scene.brokers[4].kill()
    scene.await_expiry()
    in_sync(scene, P0, 1, 2, 3)
    assert znode(scene).partitions == {0: (3, 4, 1, 2)}
    scene.run(scene.brokers[4].start())
    scene.settle()
    in_sync(scene, P0, 1, 2, 3, 4)
    assert znode(scene).partitions == {0: (3, 4)}


def test_a_replica_that_is_down_when_it_was_to_go():
    """The move ends without it; it is noted until its broker is back and has deleted it."""
    scene = scene_with({0: (1, 2, 3)})
    move(scene, {P0: (4, 5)})
    scene.brokers[3].kill()
    scene.await_expiry()
    in_sync(scene, P0, 1, 2, 4, 5)
    assert znode(scene).partitions == {0: (4, 5)}
    assert znode(scene).removing == {0: (3,)}
    assert scene.ask(MovesAsked(None)) == {}, "it has arrived"
    scene.run(scene.brokers[3].start())
    scene.settle()
    assert deleted(scene, 3) == [P0]
    assert not scene.brokers[3].told_of("LeaderAndIsr")
    assert znode(scene).removing == {}


def test_a_broker_that_never_comes_back_does_not_hold_up_a_deletion():
    """What was moved away from it because it died need not be deleted there first."""
    scene = scene_with({0: (1, 2, 3)})
    scene.brokers[3].kill()
    scene.await_expiry()
    move(scene, {P0: (1, 2)})
    scene.settle()
    assert znode(scene).removing == {0: (3,)}
    scene.run(scene.zookeeper.create(znodes.delete_topic_path("t")))
    scene.settle()
    assert scene.run(scene.zookeeper.exists(znodes.topic_path("t"))) is None


def test_a_replica_that_could_not_be_deleted_is_asked_again():
    """The znode remembers it until it is gone."""
    scene = scene_with({0: (1, 2)})
    move(scene, {P0: (2, 3)})
    scene.brokers[1].errors[P0] = ErrorCode.KAFKA_STORAGE_ERROR
    in_sync(scene, P0, 1, 2, 3)
    assert znode(scene).partitions == {0: (2, 3)}
    assert znode(scene).removing == {0: (1,)}
    scene.brokers[1].errors.clear()
    scene.settle(15)
    assert deleted(scene, 1)[-1] == P0
    assert znode(scene).removing == {}


def test_a_leader_that_writes_at_the_same_time_costs_another_try():
    """The controller decides anew from what the leader wrote; nothing that it wrote is lost."""
    scene = scene_with({0: (1, 2, 3)})
    scene.run(scene.brokers[1].write_isr(P0, (1, 2), notify=False))
    assert move(scene, {P0: (1, 2, 4)}) == {P0: 0}
    assert scene.state("t", 0).isr == (1, 2)
    assert scene.state("t", 0).leader_epoch == 1


# --- /admin/reassign_partitions ---------------------------------------------------------------------------------------


def requested(scene: ControllerScene) -> dict[TopicPartition, tuple[int, ...]] | None:
    if scene.run(scene.zookeeper.exists(znodes.REASSIGN_PARTITIONS)) is None:
        return None
    data, _ = scene.run(scene.zookeeper.get_data(znodes.REASSIGN_PARTITIONS))
    return documents.decode_reassignments(data)


def request(scene: ControllerScene, targets: dict[TopicPartition, tuple[int, ...]]) -> None:
    scene.run(scene.zookeeper.create(znodes.REASSIGN_PARTITIONS, documents.encode_reassignments(targets)))
    scene.settle()


def test_asked_for_by_znode():
    """Entries go as they finish, what cannot be goes at once, and with the last one the znode goes."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    request(scene, {P0: (3, 4), P1: (2, 3), TopicPartition("nobody", 0): (1,), TopicPartition("t", 7): (1,)})
    assert requested(scene) == {P0: (3, 4), P1: (2, 3)}
    in_sync(scene, P0, 1, 2, 3, 4)
    assert znode(scene).partitions[0] == (3, 4)
    assert requested(scene) == {P1: (2, 3)}
    in_sync(scene, P1, 1, 2, 3)
    assert requested(scene) is None
    request(scene, {P0: (1, 2)})
    assert requested(scene) == {P0: (1, 2)}


def test_a_znode_that_cannot_be_read_goes():
    """So that the next one can come."""
    scene = scene_with({0: (1, 2)})
    scene.run(scene.zookeeper.create(znodes.REASSIGN_PARTITIONS, b"?"))
    scene.settle()
    assert requested(scene) is None


def test_what_an_administrator_changed_since_stays_changed():
    """A request by RPC replaces the znode's for the same partition."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    request(scene, {P0: (3, 4), P1: (3, 4)})
    move(scene, {P0: (5, 6)})
    scene.settle()
    assert requested(scene) == {P1: (3, 4)}
    in_sync(scene, P1, 1, 2, 3, 4)
    assert znode(scene).partitions[0][:2] == (5, 6)


# --- deletion ---------------------------------------------------------------------------------------------------------


def test_a_topic_is_deleted_while_it_moves():
    """Every replica is deleted, those that were coming too, and the move is over."""
    scene = scene_with({0: (1, 2)})
    move(scene, {P0: (3, 4)})
    scene.run(scene.zookeeper.create(znodes.delete_topic_path("t")))
    scene.settle()
    for broker in (1, 2, 3, 4):
        assert deleted(scene, broker) == [P0]
    assert scene.run(scene.zookeeper.exists(znodes.topic_path("t"))) is None
    assert scene.run(scene.zookeeper.exists(znodes.delete_topic_path("t"))) is None
