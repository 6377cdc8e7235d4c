"""Description, listing and deletion of groups."""

from __future__ import annotations

import pytest
from classic_scene import GROUP, ClassicScene, Story, join_request, protocols
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic.requests import DescribedMember, JoinResponse, Leave
from kreplica.groups.coordinator import NOT_FOUND, ListedGroup

STABLE = "> a joins version=0\n> b joins static=two\n> wait 0\n> a syncs a=0 b=1\n> b syncs\n> commit\n"


def scene_after(script: str) -> ClassicScene:
    scene = ClassicScene(initial_rebalance_delay_ms=0)
    Story(scene).run(script)
    return scene


def list_groups(scene: ClassicScene, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[ListedGroup]:
    found: list[tuple[ErrorCode, list[ListedGroup]]] = []
    Deferred.fromCoroutine(scene.coordinator.list_groups(states, types)).addCallback(found.append)
    ((code, groups),) = found
    assert code is ErrorCode.NONE
    return groups


def delete_group(scene: ClassicScene) -> list[ErrorCode]:
    codes: list[ErrorCode] = []
    scene.coordinator.delete(GROUP, codes.append)
    return codes


def test_stable_group_is_described() -> None:
    """A stable group is described with the subscriptions and assignments of its members."""
    scene = scene_after(STABLE)
    described = scene.coordinator.describe(GROUP)
    subscription = protocols("range")[0][1]
    assert (described.state_name, described.protocol_type, described.protocol) == ("Stable", "consumer", "range")
    first, second = described.members
    assert first == DescribedMember(first.member_id, None, "a", "/127.0.0.1", subscription, b"0")
    assert second == DescribedMember(second.member_id, "two", "b", "/127.0.0.1", subscription, b"1")


def test_rebalancing_group_is_described() -> None:
    """During a rebalance, members are described without metadata and assignment."""
    scene = scene_after(STABLE + "> c joins version=0")
    described = scene.coordinator.describe(GROUP)
    assert (described.state_name, described.protocol_type, described.protocol) == ("PreparingRebalance", "consumer", "")
    assert [(member.client_id, member.metadata, member.assignment) for member in described.members] == [
        ("a", b"", b""),
        ("b", b"", b""),
        ("c", b"", b""),
    ]


def test_missing_group_is_described_as_dead() -> None:
    """A missing group is described as dead; a request for a group of another coordinator is an error."""
    scene = ClassicScene()
    assert scene.coordinator.describe(GROUP) is NOT_FOUND
    assert NOT_FOUND.state_name == "Dead"
    scene.unload()
    with pytest.raises(KafkaError) as caught:
        scene.coordinator.describe(GROUP)
    assert caught.value.code is ErrorCode.NOT_COORDINATOR


def test_groups_are_listed_by_state_and_type() -> None:
    """Groups with members and groups that have only offsets are listed, optionally by state and type."""
    scene = scene_after(STABLE)
    assert list_groups(scene) == [ListedGroup(GROUP, "consumer", "Stable", "classic")]
    assert list_groups(scene, states=("STABLE", "empty"), types=("Classic",)) == list_groups(scene)
    assert list_groups(scene, states=("Empty",)) == []
    assert list_groups(scene, types=("consumer",)) == []
    offsets_only = ClassicScene()
    offsets_only.commit_offset()
    assert list_groups(offsets_only) == [ListedGroup(GROUP, "", "Empty", "classic")]


def test_list_is_incomplete_while_a_partition_loads() -> None:
    """While a partition is loading, the response has an error code and the groups loaded so far."""
    scene = scene_after(STABLE)
    scene.shards.is_loading = True
    answers: list[tuple[ErrorCode, list[ListedGroup]]] = []
    Deferred.fromCoroutine(scene.coordinator.list_groups((), ())).addCallback(answers.append)
    assert answers == [(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [ListedGroup(GROUP, "consumer", "Stable", "classic")])]


def test_empty_group_is_deleted_with_its_offsets() -> None:
    """A deletion is answered once it is committed, and the next coordinator does not load the group."""
    scene = scene_after(STABLE)
    scene.commit_offset()
    scene.coordinator.leave(GROUP, [Leave(member_id) for member_id in scene.group.roster.members])
    scene.log.commit()
    codes = delete_group(scene)
    assert codes == []
    assert list_groups(scene) != []
    scene.log.commit()
    assert codes == [ErrorCode.NONE]
    assert list_groups(scene) == []
    assert delete_group(scene) == [ErrorCode.GROUP_ID_NOT_FOUND]
    scene.fail_over()
    assert list_groups(scene) == []
    assert not scene.shard.offsets.has(GROUP)


def test_group_with_offsets_only_is_deleted() -> None:
    """A replay restores a group that has only offsets until its deletion is committed."""
    scene = ClassicScene()
    scene.commit_offset()
    scene.fail_over()
    assert list_groups(scene) == [ListedGroup(GROUP, "", "Empty", "classic")]
    codes = delete_group(scene)
    scene.log.commit()
    assert codes == [ErrorCode.NONE]
    scene.fail_over()
    assert list_groups(scene) == []


def test_deletion_that_cannot_be_written_changes_nothing() -> None:
    scene = ClassicScene()
    scene.commit_offset()
    codes = delete_group(scene)
    scene.log.reject(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert list_groups(scene) == [ListedGroup(GROUP, "", "Empty", "classic")]


def test_member_joins_during_a_deletion() -> None:
    """A member that joins during a deletion creates a new group without the old offsets."""
    scene = ClassicScene(initial_rebalance_delay_ms=0)
    scene.commit_offset()
    codes = delete_group(scene)
    Story(scene).run("> a joins version=0\n> wait 0\n> a syncs a=0\n> commit")
    assert codes == [ErrorCode.NONE]
    assert list_groups(scene) == [ListedGroup(GROUP, "consumer", "Stable", "classic")]
    assert not scene.shard.offsets.has(GROUP)
    scene.fail_over()
    assert list_groups(scene) == [ListedGroup(GROUP, "consumer", "Stable", "classic")]
    assert not scene.shard.offsets.has(GROUP)


def test_commit_during_a_deletion() -> None:
    """An offset committed after the deletion is valid and keeps the group."""
    scene = ClassicScene()
    scene.commit_offset(offset=1)
    codes = delete_group(scene)
    scene.commit_offset(offset=2)
    assert codes == [ErrorCode.NONE]
    assert list_groups(scene) == [ListedGroup(GROUP, "", "Empty", "classic")]
    kept = scene.shard.offsets.committed(GROUP, "t", 0)
    assert kept is not None
    assert kept.offset == 2


def test_unused_group_is_forgotten() -> None:
    """A failed request leaves no group behind unless the group has offsets."""
    scene = ClassicScene()
    Story(scene).run("> a joins type=")
    assert list_groups(scene) == []
    scene.commit_offset()
    Story(scene).run("> a joins type=\n> a joins\n> wait 100")
    assert list_groups(scene) == [ListedGroup(GROUP, "", "Empty", "classic")]


def test_offsets_of_subscribed_topics_are_kept() -> None:
    """Offsets can be deleted unless a member subscribes to the topic or its subscription is unknown."""
    scene = scene_after(STABLE)
    assert scene.group.is_subscribed_to("t")
    assert not scene.group.is_subscribed_to("u")
    scene.group.check_offset_delete()
    connect = scene_after("> a joins version=0 type=connect\n> wait 0")
    assert not connect.group.is_subscribed_to("t")
    with pytest.raises(KafkaError) as caught:
        connect.group.check_offset_delete()
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP


def test_offset_expiry() -> None:
    """Retention starts with the commit or when the group becomes empty (KIP-211)."""
    scene = ClassicScene(initial_rebalance_delay_ms=0)
    scene.commit_offset()
    group = scene.group
    assert group.expires_from_ms("t", 5) == 5
    Story(scene).run("> a joins version=0\n> wait 0\n> a syncs a=0\n> commit")
    assert group.expires_from_ms("t", 5) is None
    assert group.expires_from_ms("u", 5) == 5
    Story(scene).run("> b joins version=0")
    assert group.expires_from_ms("u", 5) is None
    scene.advance(5)
    scene.coordinator.leave(GROUP, [Leave(member_id) for member_id in group.roster.members])
    scene.log.commit()
    assert group.state_name == "Empty"
    emptied_ms = scene.runtime.wall_clock_ms()
    scene.advance(100)
    assert group.expires_from_ms("t", 5) == emptied_ms
    scene.fail_over()
    assert scene.group.expires_from_ms("t", 5) == emptied_ms


def test_reasons_are_logged() -> None:
    """The log explains why members join and leave (KIP-800)."""
    texts: list[str] = []

    def observe(event: LogEvent) -> None:
        texts.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    try:
        scene = ClassicScene(initial_rebalance_delay_ms=0)
        joined: list[JoinResponse] = []
        scene.coordinator.join(GROUP, join_request(reason="a new process"), joined.append)
        scene.advance(0)
        scene.coordinator.leave(GROUP, [Leave(joined[0].member_id, None, "the process ends")])
        scene.coordinator.join(GROUP, join_request(), joined.append)
    finally:
        globalLogPublisher.removeObserver(observe)
    assert any(text.endswith("joins (a new process)") for text in texts)
    assert any(text.endswith("leaves (the process ends)") for text in texts)
    assert any(text.endswith("joins (no reason given)") for text in texts)
