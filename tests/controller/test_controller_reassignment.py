"""Reassignments, as seen by an administrator, the brokers and ZooKeeper."""

from __future__ import annotations

import pytest

from kreplica.cluster import documents, znodes
from kreplica.controller.event_types import AlterReassignmentsRequested, ListReassignmentsRequested
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from tests.support.controller_scene import ControllerScene

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def scene_with(partitions: dict[int, tuple[int, ...]], *, brokers: int = 6) -> ControllerScene:
    scene = ControllerScene(brokers=brokers)
    scene.start()
    scene.make_topic("t", partitions)
    scene.clear_received()
    return scene


def move(scene: ControllerScene, targets: dict[TopicPartition, tuple[int, ...] | None]) -> dict[TopicPartition, int]:
    """Request reassignments; return the error codes, 0 for success."""
    results = scene.ask(AlterReassignmentsRequested(targets))
    return {partition: 0 if error is None else int(error.code) for partition, error in results.items()}


def znode(scene: ControllerScene, topic: str = "t"):
    data, _ = scene.run(scene.zookeeper.get_data(znodes.topic_path(topic)))
    return documents.decode_topic(topic, data)


def in_sync(scene: ControllerScene, partition: TopicPartition, *isr: int) -> None:
    """Make the leader add these replicas to the ISR and notify the controller."""
    leader = scene.brokers[scene.state(*partition).leader]
    scene.run(leader.write_isr(partition, isr))
    scene.settle()


def deleted(scene: ControllerScene, broker: int) -> list[TopicPartition]:
    """Return the partitions that the broker was commanded to delete."""
    commands = scene.brokers[broker].received_of("StopReplica")
    return [p for command in commands for p, row in command.partitions.items() if row["delete_partition"]]


def test_replicas_move():
    """New replicas are added first; when they are in sync, the old ones are removed, and a new one leads."""
    scene = scene_with({0: (1, 2, 3)})
    assert move(scene, {P0: (4, 5, 6)}) == {P0: 0}
    assignment = znode(scene)
    assert assignment.partitions == {0: (4, 5, 6, 1, 2, 3)}
    assert (assignment.adding, assignment.removing) == ({0: (4, 5, 6)}, {0: (1, 2, 3)})
    assert scene.state("t", 0).leader_epoch == 1
    (received,) = scene.brokers[4].received_of("LeaderAndIsr")
    assert received.partitions[P0]["is_new"]
    assert received.partitions[P0]["adding_replicas"] == [4, 5, 6]
    (received,) = scene.brokers[1].received_of("LeaderAndIsr")
    assert not received.partitions[P0]["is_new"]

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
    last = scene.brokers[2].received_of("UpdateMetadata")[-1]
    assert last.partitions[P0]["replicas"] == [4, 5, 6]


def test_a_leader_that_stays_keeps_leading():
    """Moving one of three replicas does not change the leader."""
    scene = scene_with({0: (1, 2, 3)})
    move(scene, {P0: (1, 2, 4)})
    in_sync(scene, P0, 1, 2, 3, 4)
    assert scene.state("t", 0).leader == 1
    assert scene.state("t", 0).isr == (1, 2, 4)
    assert deleted(scene, 3) == [P0]


def test_more_and_fewer_replicas():
    """A change of the replication factor is an ordinary reassignment."""
    scene = scene_with({0: (1,), 1: (1, 2, 3)})
    assert move(scene, {P0: (1, 2, 3), P1: (3,)}) == {P0: 0, P1: 0}
    scene.settle()
    assert znode(scene).partitions == {0: (1, 2, 3), 1: (3,)}, "an in-sync replica is removed at once"
    assert scene.state("t", 1).leader == 3
    in_sync(scene, P0, 1, 2, 3)
    assert znode(scene).adding == {}


def test_another_order_is_only_another_preferred_leader():
    """Changing the order copies nothing and starts no new epoch; clients see the new order."""
    scene = scene_with({0: (1, 2, 3)})
    assert move(scene, {P0: (3, 1, 2)}) == {P0: 0}
    assert znode(scene).partitions == {0: (3, 1, 2)}
    assert scene.state("t", 0).leader_epoch == 0
    scene.settle()
    assert scene.brokers[1].received_of("UpdateMetadata")[-1].partitions[P0]["replicas"] == [3, 1, 2]
    assert not scene.brokers[1].received_of("LeaderAndIsr")


def test_a_reassignment_to_the_current_replicas():
    """Requesting the current replicas succeeds without any write."""
    scene = scene_with({0: (1, 2, 3)})
    before = scene.run(scene.zookeeper.exists(znodes.topic_path("t"))).version
    assert move(scene, {P0: (1, 2, 3)}) == {P0: 0}
    assert scene.run(scene.zookeeper.exists(znodes.topic_path("t"))).version == before


def test_cancelled_before_a_replica_caught_up():
    """The old replicas are restored at once, and the new ones delete their files."""
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
    """Leadership returns to the old replicas, and none of them leaves the ISR."""
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
    """New replicas are kept until two of the old ones are in sync."""
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
    assert scene.state("t", 0).isr == (2, 4, 5), "a single replica could not commit"
    in_sync(scene, P0, 2, 3, 4, 5)
    assert scene.state("t", 0).isr == (2, 3)
    assert scene.state("t", 0).leader in (2, 3)


def test_a_move_is_replaced_by_another():
    """Unneeded new replicas are dropped; a later cancellation restores the original replicas."""
    scene = scene_with({0: (1, 2, 3)})
    move(scene, {P0: (4, 5, 6)})
    in_sync(scene, P0, 1, 2, 3, 4)
    assert move(scene, {P0: (1, 2, 5)}) == {P0: 0}
    scene.settle()
    assert deleted(scene, 6) == [P0], "never in sync: not needed"
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
def test_invalid_reassignments_are_rejected(partition, target, code):
    """Each partition has its own result, and valid requests proceed."""
    scene = scene_with({0: (1, 2, 3)})
    assert move(scene, {partition: target}) == {partition: code}
    assert znode(scene).partitions == {0: (1, 2, 3)}


def test_one_slow_partition_does_not_hold_up_another():
    """Each partition finishes independently."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    move(scene, {P0: (3, 4), P1: (3, 4)})
    in_sync(scene, P1, 1, 2, 3, 4)
    assert znode(scene).partitions == {0: (3, 4, 1, 2), 1: (3, 4)}


def test_a_reassignment_waits_for_a_dead_target():
    """The reassignment waits for a target that failed, and finishes when this is in sync."""
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


def test_a_removed_replica_on_a_dead_broker():
    """The reassignment finishes, and the replica is recorded until its broker has deleted it."""
    scene = scene_with({0: (1, 2, 3)})
    move(scene, {P0: (4, 5)})
    scene.brokers[3].kill()
    scene.await_expiry()
    in_sync(scene, P0, 1, 2, 4, 5)
    assert znode(scene).partitions == {0: (4, 5)}
    assert znode(scene).removing == {0: (3,)}
    assert scene.ask(ListReassignmentsRequested(None)) == {}, "the new replica is in sync"
    scene.run(scene.brokers[3].start())
    scene.settle()
    assert deleted(scene, 3) == [P0]
    assert not scene.brokers[3].received_of("LeaderAndIsr")
    assert znode(scene).removing == {}


def test_a_dead_broker_does_not_block_a_topic_deletion():
    """A replica that was moved away from a dead broker does not delay the topic's deletion."""
    scene = scene_with({0: (1, 2, 3)})
    scene.brokers[3].kill()
    scene.await_expiry()
    move(scene, {P0: (1, 2)})
    scene.settle()
    assert znode(scene).removing == {0: (3,)}
    scene.run(scene.zookeeper.create(znodes.delete_topic_path("t")))
    scene.settle()
    assert scene.run(scene.zookeeper.exists(znodes.topic_path("t"))) is None


def test_a_failed_replica_deletion_is_retried():
    """The znode records the replica until it is deleted."""
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


def test_a_concurrent_leader_write_repeats_the_step():
    """The controller decides again based on the leader's state, and no change made by the leader is lost."""
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


def test_requested_by_znode():
    """Finished and impossible entries are removed; the znode is removed with the last one."""
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


def test_an_unreadable_znode_is_removed():
    """An unreadable request is removed, so that another can be written."""
    scene = scene_with({0: (1, 2)})
    scene.run(scene.zookeeper.create(znodes.REASSIGN_PARTITIONS, b"?"))
    scene.settle()
    assert requested(scene) is None


def test_rpc_overrides_the_znode():
    """A request by RPC overrides the znode for the same partition."""
    scene = scene_with({0: (1, 2), 1: (1, 2)})
    request(scene, {P0: (3, 4), P1: (3, 4)})
    move(scene, {P0: (5, 6)})
    scene.settle()
    assert requested(scene) == {P1: (3, 4)}
    in_sync(scene, P1, 1, 2, 3, 4)
    assert znode(scene).partitions[0][:2] == (5, 6)


# --- deletion ---------------------------------------------------------------------------------------------------------


def test_a_topic_is_deleted_during_a_reassignment():
    """All old and new replicas are deleted, and the reassignment ends."""
    scene = scene_with({0: (1, 2)})
    move(scene, {P0: (3, 4)})
    scene.run(scene.zookeeper.create(znodes.delete_topic_path("t")))
    scene.settle()
    for broker in (1, 2, 3, 4):
        assert deleted(scene, broker) == [P0]
    assert scene.run(scene.zookeeper.exists(znodes.topic_path("t"))) is None
    assert scene.run(scene.zookeeper.exists(znodes.delete_topic_path("t"))) is None
