"""Lag of groups in the admin API, sampled over time."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from offsets_wire import WireScene, wire_scene

from kreplica.coordination.end_offsets import EndOffsets
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.lag import WINDOW, Status, Window
from kreplica.groups.lag_tracking import GroupLag, LagConfig, LagTracker, has_consumer
from kreplica.model import TopicPartition
from kreplica.wire.batch_building import build_batch
from kreplica.wire.records import Record

INTERVAL_S = 10.0


class LagScene:
    """A lag tracker on the coordinator of a group whose topics are led by several brokers."""

    def __init__(self, wire: WireScene) -> None:
        self.wire = wire
        self.cluster = wire.cluster
        self.clients = {
            (topic, partition): wire.cluster.leader_client(topic, partition, name=f"{topic}-{partition}")
            for topic in ("t", "u")
            for partition in (0, 1)
        }
        wire.commit("g", {"t": {0: 0}})
        coordinator = next(
            machine.program
            for machine in wire.cluster.brokers.values()
            if any("g" in shard.groups for shard in machine.program.coordinators.groups.shards.loaded_shards())
        )
        coordinators = coordinator.coordinators

        def local_end_offset(key: TopicPartition) -> int | None:
            partition = coordinator.partitions.get(key)
            return partition.high_watermark if partition is not None and partition.is_leader else None

        self.end_offsets = EndOffsets(coordinators.view, coordinators.connections, local_end_offset)
        self.tracker = self.new_tracker(coordinator, LagConfig(INTERVAL_S))

    def new_tracker(self, broker, config: LagConfig) -> LagTracker:
        self.broker = broker
        return LagTracker(broker.runtime, broker.coordinators.groups.shards, self.end_offsets, config)

    def produce(self, topic: str, partition: int, count: int) -> None:
        batch = build_batch([Record(index, 1, None, b"x") for index in range(count)])
        self.cluster.run_until(self.clients[topic, partition].produce(topic, partition, batch))

    def lag(self, group: str = "g") -> GroupLag:
        return self.cluster.run_until(self.tracker.lag_of(group))

    def close(self) -> None:
        for client in self.clients.values():
            self.cluster.run_until(client.close())


@pytest.fixture
def scene() -> Iterator[LagScene]:
    with wire_scene(brokers=2) as wire:
        scene = LagScene(wire)
        yield scene
        scene.tracker.stop()
        scene.close()


def test_lag_of_a_group(scene: LagScene) -> None:
    """Lag includes partitions led by any broker."""
    for topic, partition, count in (("t", 0, 5), ("t", 1, 6), ("u", 0, 7)):
        scene.produce(topic, partition, count)
    scene.wire.commit("g", {"t": {0: (2, "here"), 1: 6}, "u": {0: 3}})
    found = scene.lag()
    assert (found.group_id, found.state_name, found.lag, found.status) == ("g", "Empty", 7, Status.STOPPED)
    rows = [(row.topic, row.partition, row.committed.offset, row.log_end_offset, row.lag) for row in found.partitions]
    assert rows == [("t", 0, 2, 5, 3), ("t", 1, 6, 6, 0), ("u", 0, 3, 7, 4)]
    assert found.partitions[0].committed.metadata == "here"


def test_extreme_offsets(scene: LagScene) -> None:
    """Any offset that a client can commit is sampled and does not affect later samples."""
    scene.produce("t", 0, 5)
    for offset, lag in ((-(2**63), 5), (-1, 5), (2**63 - 1, 0), (3, 2)):
        scene.wire.commit("g", {"t": {0: offset}})
        scene.cluster.run_until(scene.tracker.sample())
        assert [row.lag for row in scene.lag().partitions] == [lag]


def test_missing_group(scene: LagScene) -> None:
    with pytest.raises(KafkaError) as refused:
        scene.lag(other_group_in_partition(scene, "g"))
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def other_group_in_partition(scene: LagScene, group: str) -> str:
    shards = scene.broker.coordinators.groups.shards
    shard = shards.shard_of(group)
    for number in range(100):
        try:
            if shards.shard_of(f"other-{number}") is shard:
                return f"other-{number}"
        except KafkaError:
            continue
    raise LookupError(group)


def test_leader_that_does_not_respond(scene: LagScene) -> None:
    """Lag and status are unknown only for partitions whose leader does not respond."""
    scene.wire.commit("g", {"t": {0: 0, 1: 0}})
    here = scene.broker.broker_id
    leaders = {partition: scene.cluster.leader_of("t", partition) for partition in (0, 1)}
    assert sorted(leaders.values()) == [1, 2]
    scene.cluster.simulation.network.cut("broker-1", "broker-2")
    found = {each.partition: each for each in scene.lag().partitions}
    for partition, leader in leaders.items():
        assert (found[partition].lag is None) == (leader != here)
        assert (found[partition].status is None) == (leader != here)
    scene.cluster.simulation.network.heal()


def produce_and_commit(scene: LagScene, seconds: int, *, produce: int, commit: int) -> None:
    """Append records and commit every five seconds."""
    offset = 0
    for _ in range(seconds // 5):
        if produce:
            scene.produce("t", 0, produce)
        if commit >= 0:
            offset += commit
            scene.wire.commit("g", {"t": {0: offset}})
        scene.cluster.run(5)


@pytest.mark.parametrize(
    ("produce", "commit", "status"),
    [(5, 5, Status.OK), (5, 3, Status.WARN), (5, 0, Status.STALLED), (0, 0, Status.OK), (5, -1, Status.STOPPED)],
)
def test_status_is_derived_from_commits(scene: LagScene, produce: int, commit: int, status: Status) -> None:
    """Samples show whether a consumer keeps up, falls behind, is stalled or has stopped."""
    scene.tracker.start()
    produce_and_commit(scene, 150, produce=produce, commit=commit)
    assert scene.lag().status is status


def test_group_without_a_consumer_is_stopped(scene: LagScene) -> None:
    """A group that has lag but no consumer, such as after an offset reset, is STOPPED without any sample."""
    scene.produce("t", 0, 5)
    scene.wire.commit("g", {"t": {0: 5}})
    (summary,) = scene.cluster.run_until(scene.tracker.summaries())
    assert (scene.lag().status, summary.status) == (Status.OK, Status.OK)
    scene.wire.commit("g", {"t": {0: 0}})
    (summary,) = scene.cluster.run_until(scene.tracker.summaries())
    found = scene.lag()
    assert (found.status, found.partitions[0].status, summary.status) == (Status.STOPPED,) * 3


def test_lag_without_a_commit_and_without_a_consumer(scene: LagScene) -> None:
    """A group without a consumer is STOPPED even if all of its lag is in partitions without a committed offset."""
    scene.tracker = LagTracker(
        scene.broker.runtime, scene.broker.coordinators.groups.shards, scene.end_offsets, None, {"t": 2}.get
    )
    scene.produce("t", 1, 6)
    found = scene.lag()
    assert [(row.lag, row.status) for row in found.partitions] == [(0, Status.OK), (6, None)]
    assert (found.lag, found.status) == (6, Status.STOPPED)


@pytest.mark.parametrize(
    ("members", "protocol_type", "offsets", "expected"),
    [
        (1, "consumer", (0,), True),
        (0, "consumer", (0, 3, 5), False),
        (0, "", (0,), False),
        (0, "", (5, 0), False),
        (0, "", (0, 3), True),
        (0, "", (0,) * WINDOW, True),
    ],
)
def test_consumer_of_a_group(members: int, protocol_type: str, offsets: tuple[int, ...], expected: bool) -> None:
    """Commits show whether a group that never had members is used by clients that assign partitions to themselves."""
    window = Window()
    for number, offset in enumerate(offsets):
        window.add(number, offset, 9, number)
    group = SimpleNamespace(member_count=members, protocol_type=protocol_type)
    assert has_consumer(group, [Window(), window]) is expected


def test_queries_do_not_change_the_status(scene: LagScene) -> None:
    """Queries do not change the window; a new commit changes the status immediately."""
    scene.tracker.start()
    produce_and_commit(scene, 150, produce=5, commit=-1)
    for _ in range(30):
        assert scene.lag().status is Status.STOPPED
    scene.wire.commit("g", {"t": {0: 1}})
    assert scene.lag().status is Status.OK


def test_tracked_partitions_are_bounded(scene: LagScene) -> None:
    """The lag of partitions above the limit is returned, although they have no window."""
    scene.tracker = scene.new_tracker(scene.broker, LagConfig(INTERVAL_S, windows_max=2))
    scene.wire.commit("g", {"t": {0: 0, 1: 0}, "u": {0: 0}})
    scene.cluster.run_until(scene.tracker.sample())
    assert len(scene.tracker._windows) == 2
    assert len(scene.lag().partitions) == 3


def test_deleted_offsets_are_not_tracked(scene: LagScene) -> None:
    """Deleted offsets are no longer tracked, and a stopped tracker has no timer."""
    scene.cluster.run_until(scene.tracker.sample())
    assert len(scene.tracker._windows) == 1
    scene.wire.delete_offsets("g", {"t": [0]})
    scene.cluster.run_until(scene.tracker.sample())
    assert scene.tracker._windows == {}
    scene.tracker.start()
    scene.tracker.stop()
    assert scene.tracker._running is None
