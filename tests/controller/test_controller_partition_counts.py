"""Partitions that are added and removed by request znodes, as seen by an operator and the brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kreplica.cluster import documents, znodes
from kreplica.cluster.partition_requests import encode_addition, encode_removal
from kreplica.controller.event_types import AlterReassignmentsRequested
from kreplica.errors import ErrorCode
from kreplica.model import LEADER_DURING_DELETE, RemovedPartition, TopicPartition
from kreplica.zookeeper import Create, Delete, NodeExists, NoNode, Operation
from tests.support.controller_scene import ControllerScene


def scene_with(partitions: int, *, brokers: int = 3, wait_s: float = 10.0) -> ControllerScene:
    """Create a topic with this number of partitions on brokers 1 and 2, and this read-only time for removals."""
    scene = ControllerScene(brokers=brokers)
    controller = scene.controllers[101]
    controller.config = replace(controller.config, removal_wait_s=wait_s)
    scene.start()
    scene.make_topic("t", dict.fromkeys(range(partitions), (1, 2)))
    scene.clear_received()
    return scene


def znode(scene: ControllerScene):
    data, _ = scene.run(scene.zookeeper.get_data(znodes.topic_path("t")))
    return documents.decode_topic("t", data)


def there_is(scene: ControllerScene, path: str) -> bool:
    return scene.run(scene.zookeeper.exists(path)) is not None


def ask_to_add(scene: ControllerScene, *rows: tuple[int, tuple[int, ...]], topic: str = "t") -> None:
    try:
        scene.run(scene.zookeeper.create(znodes.partitions_add_path(topic)))
    except NodeExists:
        pass
    creates = [Create(znodes.partitions_add_path(topic, n), encode_addition(replicas)) for n, replicas in rows]
    scene.run(scene.zookeeper.multi(creates))
    scene.settle()


def ask_to_remove(scene: ControllerScene, *numbers: int, wait_ms: int | None = None, topic: str = "t") -> None:
    try:
        scene.run(scene.zookeeper.create(znodes.partitions_remove_path(topic)))
    except NodeExists:
        pass
    data = encode_removal(wait_ms)
    scene.run(scene.zookeeper.multi([Create(znodes.partitions_remove_path(topic, n), data) for n in numbers]))
    scene.settle(2)


def sent(scene: ControllerScene, broker: int, command: str, partition: int) -> list[dict[str, object]]:
    """Return the fields that the broker received about a partition, in order."""
    key = TopicPartition("t", partition)
    return [t.partitions[key] for t in scene.brokers[broker].received_of(command) if key in t.partitions]


# --- additions --------------------------------------------------------------------------------------------------------


def test_partitions_are_added_on_the_requested_brokers():
    """New partitions get leaders, the requests are removed, and existing partitions are unchanged."""
    scene = scene_with(2)
    ask_to_add(scene, (2, (3, 1)), (3, (2, 3)))
    assert znode(scene).partitions == {0: (1, 2), 1: (1, 2), 2: (3, 1), 3: (2, 3)}
    assert (scene.state("t", 2).leader, scene.state("t", 3).leader) == (3, 2)
    assert scene.state("t", 0).leader_epoch == 0
    assert not there_is(scene, znodes.partitions_add_path("t"))
    assert sent(scene, 3, "LeaderAndIsr", 2)[0]["is_new"]


def test_a_request_waits_for_the_partitions_before_it():
    """Partition numbers have no gaps, whatever the order of the requests."""
    scene = scene_with(2)
    ask_to_add(scene, (3, (1, 2)))
    assert len(znode(scene).partitions) == 2
    ask_to_add(scene, (2, (1, 2)))
    assert len(znode(scene).partitions) == 4
    assert not there_is(scene, znodes.partitions_add_path("t"))


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, b"[1,2]"),
        (2, b"[1]"),
        (2, b"[1,1]"),
        (2, b"[1,99]"),
        (2, b""),
        (2, b"{}"),
        (2, b"[1,true]"),
        (2, b"?"),
        ("x", b"[1,2]"),
        ("-1", b"[1,2]"),
        ("02", b"[1,2]"),
    ],
)
def test_an_impossible_addition_is_rejected(number: object, data: bytes):
    """The request is removed, the topic is unchanged, and other requests are fulfilled."""
    scene = scene_with(2)
    scene.run(scene.zookeeper.create(znodes.partitions_add_path("t")))
    scene.run(scene.zookeeper.create(f"{znodes.partitions_add_path('t')}/{number}", data))
    scene.settle()
    assert not there_is(scene, znodes.partitions_add_path("t"))
    assert len(znode(scene).partitions) == 2
    ask_to_add(scene, (2, (1, 2)))
    assert len(znode(scene).partitions) == 3


def test_additions_after_a_rejected_one_are_rejected():
    """Requests with higher numbers are rejected, and those with lower numbers are fulfilled."""
    scene = scene_with(2)
    ask_to_add(scene, (2, (1, 2)), (3, (1, 99)), (4, (1, 2)), (6, (1, 2)))
    assert list(znode(scene).partitions) == [0, 1, 2]
    assert not there_is(scene, znodes.partitions_add_path("t"))


def test_an_addition_to_an_unknown_topic_is_rejected():
    """A topic that is created later with this name is not affected."""
    scene = scene_with(1)
    ask_to_add(scene, (1, (1, 2)), topic="nobody")
    assert not there_is(scene, znodes.partitions_add_path("nobody"))


# --- removals ---------------------------------------------------------------------------------------------------------


def test_a_partition_is_read_only_before_its_removal():
    """The leader becomes read-only in a new epoch; after the wait, the partition is removed completely."""
    scene = scene_with(3)
    ask_to_remove(scene, 2)
    assert znode(scene).read_only == frozenset({2})
    assert scene.state("t", 2).leader_epoch == 1
    for broker in (1, 2):
        assert sent(scene, broker, "LeaderAndIsr", 2)[-1]["read_only"]
    assert sent(scene, 3, "UpdateMetadata", 2)[-1]["leader"] == 1
    assert not sent(scene, 1, "StopReplica", 2)

    scene.settle(9)
    assert znode(scene).partitions == {0: (1, 2), 1: (1, 2)}
    assert znode(scene).read_only == frozenset()
    assert sent(scene, 3, "UpdateMetadata", 2)[-1]["leader"] == LEADER_DURING_DELETE
    for broker in (1, 2):
        assert [row["delete_partition"] for row in sent(scene, broker, "StopReplica", 2)] == [False, True]
    assert not there_is(scene, znodes.partitions_remove_path("t"))
    assert not there_is(scene, znodes.partition_path("t", 2))
    assert znode(scene).removed == {2: RemovedPartition(1)}


def test_a_request_may_contain_the_read_only_time():
    """With a time of 0, a partition is removed at once, but only together with those that have higher numbers."""
    scene = scene_with(4, wait_s=60)
    ask_to_remove(scene, 3, wait_ms=5000)
    ask_to_remove(scene, 2, wait_ms=0)
    assert len(znode(scene).partitions) == 4
    scene.settle(4)
    assert len(znode(scene).partitions) == 2
    ask_to_remove(scene, 1, wait_ms=0)
    assert len(znode(scene).partitions) == 1


def test_a_removal_without_a_wait():
    """Without a wait, both writes are done in one step, and brokers receive only the removal."""
    scene = scene_with(2)
    term = scene.controller.context
    ask_to_remove(scene, 1, wait_ms=0)
    assert znode(scene).partitions == {0: (1, 2)}
    assert not sent(scene, 1, "LeaderAndIsr", 1)
    assert [row["delete_partition"] for row in sent(scene, 1, "StopReplica", 1)] == [False, True]
    assert scene.context is term, "the controller restarted"


def test_a_withdrawn_removal():
    """The partition accepts records again."""
    scene = scene_with(2)
    ask_to_remove(scene, 1)
    scene.run(scene.zookeeper.delete(znodes.partitions_remove_path("t", 1)))
    scene.settle(20)
    assert znode(scene).read_only == frozenset()
    assert len(znode(scene).partitions) == 2
    assert not sent(scene, 1, "LeaderAndIsr", 1)[-1]["read_only"]
    assert scene.state("t", 1).leader_epoch == 2


def test_a_removal_withdrawn_during_its_write():
    """The partition is kept and accepts records again."""
    scene = scene_with(2)
    client = scene.controller._client
    multi = client.multi
    taken_back: list[str] = []

    def slow_multi(operations: Sequence[Operation]) -> Deferred[Any]:
        asked = [op.path for op in operations if isinstance(op, Delete) and op.path.startswith("/admin")]
        if not asked or taken_back:
            return multi(operations)
        taken_back.extend(asked)
        return scene.zookeeper.delete(asked[0]).addCallback(lambda _: multi(operations))

    client.multi = slow_multi
    ask_to_remove(scene, 1, wait_ms=0)
    scene.settle(5)
    assert taken_back == [znodes.partitions_remove_path("t", 1)]
    assert list(znode(scene).partitions) == [0, 1]
    assert znode(scene).read_only == frozenset()
    assert scene.controller.context.controller_epoch == 1, "the term did not end"


@pytest.mark.parametrize("number", [0, 1, 7])
def test_only_the_last_partitions_can_be_removed(number: int):
    """Requests for all partitions or for unknown ones are rejected."""
    scene = scene_with(3)
    ask_to_remove(scene, number)
    assert not there_is(scene, znodes.partitions_remove_path("t"))
    assert znode(scene).read_only == frozenset()
    ask_to_remove(scene, 0, 1, 2, wait_ms=0)
    assert list(znode(scene).partitions) == [0]


@pytest.mark.parametrize("data", [b"?", b"[]", b'{"version":1,"wait_ms":-1}', b'{"version":1,"wait_ms":"1"}'])
def test_an_unreadable_removal_is_rejected(data: bytes):
    """The request is removed and has no effect."""
    scene = scene_with(2)
    scene.run(scene.zookeeper.create(znodes.partitions_remove_path("t")))
    scene.run(scene.zookeeper.create(znodes.partitions_remove_path("t", 1), data))
    scene.settle()
    assert not there_is(scene, znodes.partitions_remove_path("t"))
    assert znode(scene).read_only == frozenset()


def test_removal_and_reassignment_exclude_each_other():
    """A partition in a reassignment cannot be removed, and one being removed cannot be reassigned."""
    scene = scene_with(3)
    moving, removed = TopicPartition("t", 2), TopicPartition("t", 1)
    scene.ask(AlterReassignmentsRequested({moving: (1, 3)}))
    scene.settle()
    ask_to_remove(scene, 2)
    assert not there_is(scene, znodes.partitions_remove_path("t"))
    scene.ask(AlterReassignmentsRequested({moving: None}))
    scene.settle()
    ask_to_remove(scene, 2, 1)
    answer = scene.ask(AlterReassignmentsRequested({removed: (1, 3)}))
    assert answer[removed].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_broker_that_is_down_deletes_when_it_is_back():
    """Clients lose the partition at once; its number can be reused when the last replica has been deleted."""
    scene = scene_with(2)
    scene.brokers[2].kill()
    scene.await_expiry()
    ask_to_remove(scene, 1, wait_ms=0)
    assert znode(scene).removed[1].replicas == (1, 2)
    ask_to_add(scene, (1, (1, 3)))
    assert not there_is(scene, znodes.partitions_add_path("t"))
    assert list(znode(scene).partitions) == [0], "rejected: broker 2 may have files of the old partition"
    scene.run(scene.brokers[2].start())
    scene.settle()
    assert [row["delete_partition"] for row in sent(scene, 2, "StopReplica", 1)] == [False, True]
    assert sent(scene, 2, "UpdateMetadata", 1)[0]["leader"] == LEADER_DURING_DELETE
    assert znode(scene).removed[1].replicas == ()


def test_a_reused_number_starts_above_its_last_epoch():
    """Replicas and clients of the old partition cannot mistake the new one for it."""
    scene = scene_with(2)
    ask_to_remove(scene, 1, wait_ms=0)
    assert znode(scene).removed == {1: RemovedPartition(1)}
    ask_to_add(scene, (1, (2, 3)))
    state = scene.state("t", 1)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 2, (2, 3))
    ask_to_remove(scene, 1, wait_ms=0)
    assert znode(scene).removed == {1: RemovedPartition(3)}


def test_partitions_are_not_added_while_others_are_removed():
    """Additions are rejected, because the next partition number is about to change."""
    scene = scene_with(2)
    ask_to_remove(scene, 1)
    ask_to_add(scene, (2, (1, 2)))
    assert not there_is(scene, znodes.partitions_add_path("t"))
    assert len(znode(scene).partitions) == 2


def test_a_deleted_topic_loses_its_requests():
    """A topic that is created later with the same name is not affected."""
    scene = scene_with(2, wait_s=3600)
    ask_to_remove(scene, 1)
    ask_to_add(scene, (5, (1, 2)))
    scene.run(scene.zookeeper.create(znodes.delete_topic_path("t")))
    scene.settle()
    with pytest.raises(NoNode):
        znode(scene)
    assert not there_is(scene, znodes.partitions_remove_path("t"))
    assert not there_is(scene, znodes.partitions_add_path("t"))
    scene.make_topic("t", {0: (1, 2), 1: (1, 2)})
    assert znode(scene).read_only == frozenset()
    assert scene.state("t", 1).leader_epoch == 0
