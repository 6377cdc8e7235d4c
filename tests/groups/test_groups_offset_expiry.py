"""Expiry of offsets and of empty groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from offsets_wire import WireScene, wire_scene

from kreplica.groups.offset_expiry import is_expired
from kreplica.groups.records import CommittedOffset
from kreplica.wire import messages

MINUTE_MS = 60_000
RETENTION_MIN = 10
CHECK_S = 60
REMOVAL_S = 3 * CHECK_S
"""Time within which a check finds an expired offset, its tombstone is committed, and the group is removed."""

COMMITTED = CommittedOffset(5, -1, "", 100 * MINUTE_MS)
EXPIRING = COMMITTED._replace(expire_timestamp_ms=105 * MINUTE_MS)


@pytest.fixture
def scene() -> Iterator[WireScene]:
    settings = (
        f"offsets.retention.minutes={RETENTION_MIN}",
        f"offsets.retention.check.interval.ms={CHECK_S * 1000}",
        "group.min.session.timeout.ms=1000",
    )
    with wire_scene(*settings) as scene:
        yield scene


@pytest.mark.parametrize(
    ("committed", "since_ms", "minute", "expected"),
    [
        (COMMITTED, None, 10_000, False),
        (COMMITTED, 100 * MINUTE_MS, 109, False),
        (COMMITTED, 100 * MINUTE_MS, 110, True),
        (COMMITTED, 200 * MINUTE_MS, 110, False),
        (COMMITTED, 200 * MINUTE_MS, 210, True),
        (EXPIRING, 100 * MINUTE_MS, 104, False),
        (EXPIRING, 100 * MINUTE_MS, 105, True),
        (EXPIRING, 200 * MINUTE_MS, 105, True),
        (EXPIRING, None, 10_000, False),
    ],
)
def test_offset_expiry(committed: CommittedOffset, since_ms: int | None, minute: int, expected: bool) -> None:
    """Offsets expire after their retention, or at the time set by an old client, and never while in use."""
    assert is_expired(committed, since_ms, minute * MINUTE_MS, RETENTION_MIN * MINUTE_MS) is expected


def exists(scene: WireScene, group: str) -> bool:
    try:
        scene.shard(group)
    except LookupError:
        return False
    return True


def test_offset_of_a_simple_consumer_expires_after_its_commit(scene: WireScene) -> None:
    """Without members, the retention starts with each offset's last commit."""
    scene.commit("g", {"t": {0: 5, 1: 6}})
    scene.cluster.run(RETENTION_MIN * 60 - 2 * CHECK_S)
    scene.commit("g", {"t": {1: 7}})
    scene.cluster.run(REMOVAL_S)
    assert scene.fetch("g", None) == {("t", 1): (7, "")}
    assert exists(scene, "g")
    scene.cluster.run(RETENTION_MIN * 60)
    assert scene.fetch("g", None) == {}
    assert not exists(scene, "g")


def test_expired_offsets_are_removed_from_the_log(scene: WireScene) -> None:
    """Expired offsets are not loaded by the next coordinator."""
    scene.commit("g", {"t": {0: 5}})
    partition = scene.shard("g").log.partition
    scene.cluster.run(RETENTION_MIN * 60 + REMOVAL_S)
    machine = scene.cluster.brokers[1]
    scene.close()
    scene.cluster.run_until(machine.stop())
    scene.cluster.run_until(machine.start())
    groups = machine.program.coordinators.groups
    scene.cluster.run_until(lambda: any(shard.log.partition == partition for shard in groups.shards.loaded_shards()))
    scene.cluster.run_until(lambda: not groups.shards.is_loading)
    assert scene.fetch("g", None) == {}
    assert not exists(scene, "g")


def test_offsets_expire_after_the_group_becomes_empty(scene: WireScene) -> None:
    """The retention starts when the last member has left."""
    member_id, generation = scene.join("g", ["t"])
    member = {"member_id": member_id, "generation_id_or_member_epoch": generation}
    scene.commit("g", {"t": {0: 5}}, **member)
    for _ in range(2 * RETENTION_MIN * 3):
        scene.cluster.run(20)
        heartbeat = {"group_id": "g", "generation_id": generation, "member_id": member_id}
        answer = scene.request(scene.client("g"), messages.HEARTBEAT, heartbeat)
        assert answer["error_code"] == 0
    assert scene.fetch("g", None) == {("t", 0): (5, "")}
    scene.leave("g", member_id)
    scene.cluster.run(RETENTION_MIN * 60 - CHECK_S)
    assert scene.fetch("g", None) == {("t", 0): (5, "")}
    scene.cluster.run(REMOVAL_S)
    assert scene.fetch("g", None) == {}
    assert not exists(scene, "g")


def test_offsets_of_unsubscribed_topics_expire(scene: WireScene) -> None:
    """Offsets of topics to which no member subscribes expire even in an active group."""
    member_id, generation = scene.join("g", ["t"])
    member = {"member_id": member_id, "generation_id_or_member_epoch": generation}
    scene.commit("g", {"t": {0: 5}, "u": {0: 6}}, **member)
    for _ in range(RETENTION_MIN * 3 + 6):
        scene.cluster.run(20)
        scene.request(
            scene.client("g"),
            messages.HEARTBEAT,
            {"group_id": "g", "generation_id": generation, "member_id": member_id},
        )
    assert scene.fetch("g", None) == {("t", 0): (5, "")}


def test_retention_in_the_request(scene: WireScene) -> None:
    """A retention time in OffsetCommit (versions 2 to 4) overrides the broker's setting."""
    scene.commit("short", {"t": {0: 5}}, version=4, retention_time_ms=2 * MINUTE_MS)
    scene.commit("long", {"t": {0: 5}}, version=4, retention_time_ms=3 * RETENTION_MIN * MINUTE_MS)
    scene.cluster.run(2 * 60 + REMOVAL_S)
    assert scene.fetch("short", None) == {}
    scene.cluster.run(RETENTION_MIN * 60)
    assert scene.fetch("long", None) == {("t", 0): (5, "")}


def test_empty_group_without_offsets_is_removed(scene: WireScene) -> None:
    member_id, _ = scene.join("g", ["t"])
    scene.leave("g", member_id)
    assert exists(scene, "g")
    scene.cluster.run(REMOVAL_S)
    assert not exists(scene, "g")


def test_offsets_are_removed_with_their_topic(scene: WireScene) -> None:
    """Offsets of a deleted topic do not apply to a new topic with the same name."""
    scene.commit("g", {"t": {0: 5}, "u": {0: 6}})
    scene.commit("h", {"t": {1: 5}})
    scene.cluster.run_until(scene.plain_client.delete_topic("t"))
    scene.cluster.run_until(scene.plain_client.create_topic("t", 2))
    scene.cluster.run_until(lambda: not exists(scene, "h"))
    assert scene.fetch("g", {"t": [0], "u": [0]}) == {("t", 0): (-1, ""), ("u", 0): (6, "")}


def test_missed_topic_deletion_is_detected(scene: WireScene) -> None:
    scene.commit("g", {"t": {0: 5}, "u": {0: 6}})
    broker = scene.cluster.brokers[1].program
    broker.metadata._removal_observers.clear()
    scene.cluster.run_until(scene.plain_client.delete_topic("t"))
    assert scene.fetch("g", None) == {("t", 0): (5, ""), ("u", 0): (6, "")}
    scene.cluster.run(REMOVAL_S)
    assert scene.fetch("g", None) == {("u", 0): (6, "")}


def test_incomplete_metadata_removes_no_offsets(scene: WireScene) -> None:
    scene.commit("g", {"t": {0: 5}})
    metadata = scene.cluster.brokers[1].program.metadata
    assert metadata.is_complete
    metadata.is_complete = False
    removed_topic = metadata.topics.pop("t")
    scene.cluster.run(REMOVAL_S)
    metadata.topics["t"] = removed_topic
    assert scene.fetch("g", None) == {("t", 0): (5, "")}


def test_stopped_broker_has_no_timer(scene: WireScene) -> None:
    scene.commit("g", {"t": {0: 5}})
    expiry = scene.shard("g").expiry
    assert expiry._running
    scene.cluster.run_until(scene.cluster.brokers[1].stop())
    assert not expiry._running
