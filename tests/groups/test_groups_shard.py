"""Restoring the groups of a loaded partition."""

from __future__ import annotations

from classic_scene import NOT_TRANSACTIONAL, ClassicScene, StrictClock
from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode
from kreplica.groups.coordinator import ListedGroup
from kreplica.groups.records import GroupRecord, MemberRecord, build_group_key, build_group_value

GROUPS = 100


class BusyClock(StrictClock):
    """A clock that advances whenever it is read."""

    def seconds(self) -> float:
        self.rightNow += 0.001
        return super().seconds()


def busy_scene() -> ClassicScene:
    """Return a broker that has just loaded a hundred groups with one member each."""
    scene = ClassicScene()
    scene.unload()
    for index in range(GROUPS):
        member = MemberRecord("a", None, "client", "/127.0.0.1", 30_000, 10_000, b"", b"")
        record = GroupRecord("consumer", 3, "range", "a", 0, (member,))
        scene.log.records.append((build_group_key(f"group {index}"), build_group_value(record)))
    scene.clock.__class__ = BusyClock
    scene.load()
    return scene


def list_all_groups(scene: ClassicScene) -> tuple[ErrorCode, list[ListedGroup]]:
    found: list[tuple[ErrorCode, list[ListedGroup]]] = []
    Deferred.fromCoroutine(scene.coordinator.list_groups((), ())).addCallback(found.append)
    while not found:
        scene.clock.advance(0)
    return found[0]


def test_groups_are_restored_in_slices() -> None:
    """Restoring many groups does not block the event loop."""
    scene = busy_scene()
    assert 0 < len(scene.shard.groups) < GROUPS / 2
    while scene.shard.is_restoring:
        scene.clock.advance(0)
    code, groups = list_all_groups(scene)
    assert code is ErrorCode.NONE
    assert len(groups) == GROUPS
    scene.unload()
    assert scene.clock.getDelayedCalls() == []


def test_list_is_incomplete_during_the_restore() -> None:
    assert list_all_groups(busy_scene())[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_requested_group_is_restored_immediately() -> None:
    scene = busy_scene()
    last = f"group {GROUPS - 1}"
    assert last not in scene.shard.groups
    assert scene.coordinator.heartbeat(last, "a", None, 3) is ErrorCode.NONE
    assert scene.coordinator.heartbeat(last, "a", None, 2) is ErrorCode.ILLEGAL_GENERATION
    assert scene.coordinator.describe(last).state_name == "Stable"


def test_unloading_stops_the_restore() -> None:
    """A shard that is unloaded during the restore leaves no timer."""
    scene = busy_scene()
    scene.unload()
    assert scene.clock.getDelayedCalls() == []


def test_unknown_record_types_are_ignored() -> None:
    scene = ClassicScene()
    scene.shard.replay(b"\x7f\x00anything", b"anything", NOT_TRANSACTIONAL)
    assert list_all_groups(scene) == (ErrorCode.NONE, [])


def test_last_record_of_a_group_wins() -> None:
    """The last record of a group wins, and a tombstone removes the group."""
    scene = ClassicScene()
    scene.unload()
    key = build_group_key("g")
    for generation in (1, 2):
        scene.log.records.append((key, build_group_value(GroupRecord("consumer", generation, None, None, 5, ()))))
    scene.load()
    assert list_all_groups(scene)[1] == [ListedGroup("g", "consumer", "Empty", "classic")]
    group = scene.shard.classic("g")
    assert group.generation == 2
    assert group.expires_from_ms("t", 9) == 5
    scene.unload()
    scene.log.records.append((key, None))
    scene.load()
    assert list_all_groups(scene)[1] == []


def test_negative_session_timeout_expires_immediately() -> None:
    scene = ClassicScene()
    scene.unload()
    member = MemberRecord("a", None, "client", "/127.0.0.1", -1, -1, b"", b"")
    record = GroupRecord("consumer", 3, "range", "a", 0, (member,))
    scene.log.records.append((build_group_key("g"), build_group_value(record)))
    scene.load()
    scene.advance(0)
    assert list_all_groups(scene)[1] == [ListedGroup("g", "consumer", "Empty", "classic")]
