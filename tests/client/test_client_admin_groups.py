"""Groups and committed offsets through ``Admin``."""

from __future__ import annotations

import pytest
from admin_scene import AdminScene, error_codes

from kreplica.client import TopicPartition
from kreplica.client.admin import AclOperation, GroupState, GroupType, MemberToRemove
from kreplica.client_core.errors import BrokerRefused
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.client_core.offsets import CommittedOffset
from kreplica.errors import ErrorCode

READ, OTHER, NOPE = TopicPartition("read", 0), TopicPartition("read", 1), TopicPartition("nope", 0)
GROUP_OPERATIONS = frozenset({AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE})


def test_offsets(scene: AdminScene) -> None:
    """Offsets are committed, listed, compared with log end offsets, and deleted."""

    async def scenario() -> None:
        admin = scene.admin
        await admin.create_topic("read", 2, 3)
        await scene.produce(READ, [b"a", b"b", b"c"])
        committed = await admin.alter_group_offsets("g", {READ: 1, OTHER: CommittedOffset(0, 0, "why"), NOPE: 5})
        assert error_codes(committed.failed) == {NOPE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        (await admin.alter_group_offsets("h", {READ: 3})).raise_first()
        assert await admin.group_offsets("g") == {READ: CommittedOffset(1), OTHER: CommittedOffset(0, 0, "why")}
        by_group = await admin.list_group_offsets({"g": [OTHER], "h": None, "missing": None}, require_stable=True)
        assert {group: sorted(offsets) for group, offsets in by_group.raise_first().items()} == {
            "g": [OTHER],
            "h": [READ],
            "missing": [],
        }
        lag = (await admin.group_lag("g")).raise_first()
        assert {partition: each.lag for partition, each in lag.items()} == {READ: 2, OTHER: 0}

        (await admin.delete_group_offsets("g", [OTHER])).raise_first()
        assert list(await admin.group_offsets("g")) == [READ]
        unknown = await admin.delete_group_offsets("missing", [READ, OTHER])
        assert error_codes(unknown.failed) == dict.fromkeys((READ, OTHER), ErrorCode.GROUP_ID_NOT_FOUND)
        deleted = await admin.delete_groups(["g", "h", "missing"])
        assert error_codes(deleted.failed) == {"missing": ErrorCode.GROUP_ID_NOT_FOUND}
        assert await admin.list_groups() == []

    scene.run(scenario(), 60)


def test_groups_of_both_protocols(scene: AdminScene) -> None:
    """Groups are listed by state and type and described with their members, and members are removed."""

    async def scenario() -> None:
        admin = scene.admin
        member_id = await scene.join_classic("old", "i1", "read")
        await scene.heartbeat_consumer("new", "m1", "read", 0)
        (await admin.alter_group_offsets("empty", {READ: 1})).raise_first()

        listed = {each.group_id: (each.state, each.type) for each in await admin.list_groups()}
        assert listed["old"] == (GroupState.STABLE, GroupType.CLASSIC)
        assert listed["empty"] == (GroupState.EMPTY, GroupType.CLASSIC)
        assert listed["new"][1] is GroupType.CONSUMER
        assert [each.group_id for each in await admin.list_groups(states=[GroupState.EMPTY])] == ["empty"]
        assert [each.group_id for each in await admin.list_groups(types=[GroupType.CONSUMER])] == ["new"]

        described = await admin.describe_groups(["old", "new", "empty", "missing"])
        assert error_codes(described.failed) == {"missing": ErrorCode.GROUP_ID_NOT_FOUND}
        assert described["empty"].members == ()
        allowed = (await admin.describe_groups(["old", "new"], operations=True)).raise_first()
        assert {each.operations for each in allowed.values()} == {GROUP_OPERATIONS}
        assert described["old"].operations is None
        old, new = described["old"], described["new"]
        assert (old.type, old.state, old.assignor) == (GroupType.CLASSIC, GroupState.STABLE, "range")
        (member,) = old.members
        assert (member.member_id, member.instance_id, member.client_id) == (member_id, "i1", "kreplica")
        assert (member.topics, member.assignment) == (("read",), {READ})
        assert new.type is GroupType.CONSUMER
        (member,) = new.members
        assert (member.member_id, member.topics, member.target) == ("m1", ("read",), {READ, OTHER})
        assert new.epoch >= member.epoch > 0

        busy = await admin.alter_group_offsets("old", {READ: 1})
        assert error_codes(busy.failed) == {READ: ErrorCode.UNKNOWN_MEMBER_ID}
        with pytest.raises(BrokerRefused, match="NON_EMPTY_GROUP"):
            await admin.delete_group("old")
        removed = await admin.remove_members("old", [MemberToRemove("i1"), MemberToRemove("i2")])
        assert error_codes(removed.failed) == {MemberToRemove("i2"): ErrorCode.UNKNOWN_MEMBER_ID}
        assert (await admin.describe_group("old")).state is GroupState.EMPTY
        assert len(await admin.remove_members("old")) == 0
        await scene.join_classic("old", "i3", "read")
        assert len((await admin.remove_members("old")).raise_first()) == 1
        await scene.heartbeat_consumer("new", "m1", "read", -1)
        (await admin.delete_groups(["old", "new", "empty"])).raise_first()

    scene.run(scenario(), 60)


def test_coordinator_dies(scene: AdminScene) -> None:
    """After the coordinator dies, its successor still returns the committed offsets."""

    async def commit_and_list() -> str:
        (await scene.admin.alter_group_offsets("g", {READ: 2})).raise_first()
        (group,) = await scene.admin.list_groups(states=[GroupState.EMPTY])
        return group.group_id

    assert scene.run(commit_and_list(), 60) == "g"
    address = scene.run(scene.cluster.coordinator(CoordinatorKind.GROUP, "g"))
    broker = scene.brokers.brokers[int(address.host.removeprefix("broker-"))]
    broker.kill()
    assert scene.run(scene.admin.group_offsets("g"), 60) == {READ: CommittedOffset(2)}
    assert [each.group_id for each in scene.run(scene.admin.list_groups(), 60)] == ["g"]
    scene.run(broker.start())
