"""Groups change their protocol only while they have no members, and keep their offsets."""

from __future__ import annotations

import pytest
from classic_scene import START_MS, join_request
from consumer_scene import GROUP, ConsumerScene, Member

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.classic.group import ClassicGroup
from kreplica.groups.classic.requests import JoinResponse
from kreplica.groups.consumer.group import ConsumerGroup
from kreplica.groups.consumer.transitions import HeartbeatResponse
from kreplica.groups.records import GroupRecord, MemberRecord, build_group_key, build_group_value

CLASSIC_MEMBER = MemberRecord("old", None, "client", "/127.0.0.1", 10_000, 10_000, b"", b"")


class Scene(ConsumerScene):
    """A loaded classic group with the given members, and a KIP-848 client."""

    def __init__(self, *members: MemberRecord) -> None:
        super().__init__()
        self.cluster.set_partition_count("t", 4)
        self.member = Member("a")
        self.member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
        record = GroupRecord("consumer", 3, "range" if members else None, None, START_MS, members)
        self.log.records.append((build_group_key(GROUP), build_group_value(record)))
        self.fail_over()

    def join(self) -> HeartbeatResponse | ErrorCode:
        responses: list[HeartbeatResponse | ErrorCode] = []
        self.send(self.member.join_heartbeat(), responses.append)
        self.log.commit()
        if isinstance(responses[0], HeartbeatResponse):
            self.member.apply(responses[0])
        return responses[0]

    def leave(self) -> None:
        self.send(self.member.leave_heartbeat(), lambda answer: None)
        self.log.commit()

    def join_as_classic(self) -> JoinResponse:
        responses: list[JoinResponse] = []
        self.shard.classic(GROUP).join(join_request(), responses.append)
        self.log.commit()
        self.advance(5)
        return responses[-1]


def test_empty_classic_group_is_converted() -> None:
    """The first KIP-848 member that joins replaces an empty classic group in one write."""
    scene = Scene()
    assert isinstance(scene.join(), HeartbeatResponse)
    assert scene.state.epoch == 1
    keys = [key for key, value in scene.log.records]
    assert keys.index(build_group_key(GROUP), 1) == 1
    scene.fail_over()
    assert isinstance(scene.shard.group(GROUP), ConsumerGroup)
    scene.unload()


def test_classic_group_with_members_is_not_converted() -> None:
    """A KIP-848 heartbeat to a classic group with members gets GROUP_ID_NOT_FOUND and changes nothing."""
    scene = Scene(CLASSIC_MEMBER)
    assert scene.join() is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(scene.shard.group(GROUP), ClassicGroup)
    assert len(scene.log.records) == 1
    scene.unload()
    assert scene.clock.getDelayedCalls() == []


def test_refused_heartbeat_keeps_the_classic_group() -> None:
    scene = Scene()
    responses: list[HeartbeatResponse | ErrorCode] = []
    scene.send(scene.member.heartbeat(), responses.append)
    scene.member.subscription["server_assignor"] = "none"
    assert scene.join() is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert responses == [ErrorCode.INVALID_REQUEST]
    assert isinstance(scene.shard.group(GROUP), ClassicGroup)
    scene.unload()


def test_conversion_with_a_write_too_large() -> None:
    """If the first write is too large, the new group is dead; the next write removes the classic group."""
    scene = Scene()
    responses: list[HeartbeatResponse | ErrorCode] = []
    scene.send(scene.member.join_heartbeat(), responses.append)
    scene.log.reject(ErrorCode.MESSAGE_TOO_LARGE)
    assert responses == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert scene.group.state_name == "Dead"
    scene.join()
    assert (build_group_key(GROUP), None) in scene.log.records
    scene.unload()


def test_group_is_forgotten_after_a_failed_first_write() -> None:
    """A group whose first write was too large is removed by the next cleanup."""
    scene = ConsumerScene()
    member = Member("a")
    member.subscription = {"topic_names": ("t",), "rebalance_timeout_ms": 1000}
    scene.send(member.join_heartbeat(), lambda answer: None)
    scene.log.reject(ErrorCode.MESSAGE_TOO_LARGE)
    assert scene.shard.group(GROUP) is not None
    scene.advance(601)
    assert scene.shard.group(GROUP) is None
    scene.unload()


def test_empty_group_becomes_classic() -> None:
    """The first JoinGroup replaces an empty KIP-848 group."""
    scene = Scene()
    scene.join()
    scene.leave()
    assert scene.join_as_classic().error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
    assert isinstance(scene.shard.group(GROUP), ClassicGroup)
    scene.fail_over()
    assert not isinstance(scene.shard.group(GROUP), ConsumerGroup)
    scene.unload()


def test_group_with_members_does_not_become_classic() -> None:
    """JoinGroup to a KIP-848 group with members gets INCONSISTENT_GROUP_PROTOCOL."""
    scene = Scene()
    scene.join()
    with pytest.raises(KafkaError) as caught:
        scene.shard.classic(GROUP)
    assert caught.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    scene.unload()


def test_conversion_that_was_not_written() -> None:
    """If the log contains records of both protocols, the later ones determine the group."""
    scene = Scene()
    scene.join()
    scene.leave()
    record = GroupRecord("consumer", 1, "range", "old", START_MS, (CLASSIC_MEMBER,))
    scene.log.records.append((build_group_key(GROUP), build_group_value(record)))
    scene.fail_over()
    assert isinstance(scene.shard.group(GROUP), ClassicGroup)
    scene.unload()
    assert scene.clock.getDelayedCalls() == []
