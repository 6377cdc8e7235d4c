"""OffsetCommit, OffsetFetch and OffsetDelete in every version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from offsets_wire import WireScene, topics_of, wire_scene

from kreplica.errors import ErrorCode
from kreplica.groups.records import NO_TIME, parse_offset_key, parse_offset_value
from kreplica.server.handlers.groups.offset_rows import LARGE_COMMIT_OFFSETS
from kreplica.wire import messages

NONE = ErrorCode.NONE
COMMIT_VERSIONS = range(1, messages.OFFSET_COMMIT.versions[1] + 1)
FETCH_VERSIONS = range(1, messages.OFFSET_FETCH.versions[1] + 1)


@pytest.fixture(scope="module")
def scene() -> Iterator[WireScene]:
    with wire_scene("offset.metadata.max.bytes=20") as scene:
        yield scene


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_committed_offsets_are_returned(scene: WireScene, version: int) -> None:
    """Offsets and metadata are returned in all versions of both requests."""
    group = f"commit-{version}"
    assert scene.commit(group, {"t": {0: (5, "where é", 3), 1: (6, None)}, "u": {1: 7}}, version=version) is NONE
    for fetch_version in FETCH_VERSIONS:
        answer = scene.fetch(group, {"t": [0, 1], "u": [0, 1], "v": [0]}, version=fetch_version)
        assert answer == {
            ("t", 0): (5, "where é"),
            ("t", 1): (6, ""),
            ("u", 0): (-1, ""),
            ("u", 1): (7, ""),
            ("v", 0): (-1, ""),
        }
        row = scene.fetch_answer(group, {"t": [0]}, version=fetch_version)["topics"][0]["partitions"][0]
        if fetch_version >= 5:
            assert row["committed_leader_epoch"] == (3 if version >= 6 else -1)


@pytest.mark.parametrize("version", [version for version in FETCH_VERSIONS if version >= 2])
def test_all_offsets_of_a_group_are_returned(scene: WireScene, version: int) -> None:
    """A request without topics returns all offsets of the group."""
    scene.commit("all", {"u": {1: 7}, "t": {1: 6, 0: 5}})
    assert scene.fetch("all", None, version=version) == {("t", 0): (5, ""), ("t", 1): (6, ""), ("u", 1): (7, "")}
    assert scene.fetch("unknown", None, version=version) == {}


def test_several_groups_in_one_request(scene: WireScene) -> None:
    """Offsets of many groups can be fetched at once; missing groups have none."""
    scene.commit("several-1", {"t": {0: 1}})
    scene.commit("several-2", {"t": {0: 2}})
    groups = [
        {"group_id": "several-1", "topics": None},
        {"group_id": "several-2", "topics": [{"name": "t", "partition_indexes": [0, 1]}]},
        {"group_id": "several-3", "topics": None},
    ]
    answer = scene.request(scene.plain_client, messages.OFFSET_FETCH, {"groups": groups, "require_stable": True})
    offsets = [
        [(row["partition_index"], row["committed_offset"]) for topic in group["topics"] for row in topic["partitions"]]
        for group in answer["groups"]
    ]
    assert [group["group_id"] for group in answer["groups"]] == ["several-1", "several-2", "several-3"]
    assert offsets == [[(0, 1)], [(0, 2), (1, -1)], []]
    assert [group["error_code"] for group in answer["groups"]] == [0, 0, 0]


def test_last_commit_wins(scene: WireScene) -> None:
    """The last commit wins, even if its offset is smaller."""
    for offset in (5, 9, 2):
        assert scene.commit("again", {"t": {0: (offset, f"n{offset}")}}) is NONE
    assert scene.fetch("again", {"t": [0]}) == {("t", 0): (2, "n2")}


def test_each_partition_has_its_own_result(scene: WireScene) -> None:
    """An invalid offset does not affect the other partitions."""
    unknown, too_large = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_METADATA_TOO_LARGE
    offsets = {"t": {0: (1, "x" * 21), 1: (2, "é" * 20)}, "nowhere": {0: 3}, "u": {-1: 4, 0: 5}}
    assert scene.commit("partly", offsets) == [too_large, NONE, unknown, unknown, NONE]
    assert scene.fetch("partly", None) == {("t", 1): (2, "é" * 20), ("u", 0): (5, "")}


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_partitions_that_do_not_exist_are_refused(scene: WireScene, version: int) -> None:
    """Missing partitions are refused, as in Kafka; otherwise a group could commit offsets of 2^31 partitions."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    group = f"partitions-{version}"
    assert scene.commit(group, {"t": {1: 1, 2: 2, 2**31 - 1: 3}}, version=version) == [NONE, unknown, unknown]
    assert scene.fetch(group, None) == {("t", 1): (1, "")}


def test_commit_without_any_valid_offset(scene: WireScene) -> None:
    """A commit without valid offsets writes nothing and creates no group."""
    assert scene.commit("nothing", {"nowhere": {0: 3}}) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(LookupError):
        scene.shard("nothing")


def test_timestamps_and_retentions_of_old_versions(scene: WireScene) -> None:
    """Version 1 has a timestamp for each offset, versions 2 to 4 have a retention time."""
    topics = topics_of({"t": {0: 5, 1: 6}})
    topics[0]["partitions"][0]["commit_timestamp"] = 1234
    assert scene.commit("old", {}, version=1, topics=topics) is NONE
    shard = scene.shard("old")
    assert shard.offsets.committed("old", "t", 0).commit_timestamp_ms == 1234
    assert shard.offsets.committed("old", "t", 1).commit_timestamp_ms > 1234
    for retention_ms, version in ((60_000, 2), (-1, 3), (2**63 - 1, 4)):
        assert scene.commit("old", {"t": {0: 5}}, version=version, retention_time_ms=retention_ms) is NONE
        committed = shard.offsets.committed("old", "t", 0)
        expected = NO_TIME if retention_ms == -1 else min(committed.commit_timestamp_ms + retention_ms, 2**63 - 1)
        assert committed.expire_timestamp_ms == expected


def test_commit_with_a_generation_but_no_group_is_refused(scene: WireScene) -> None:
    """The error depends on the request version."""
    for version, code in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
        answer = scene.commit("gone", {"t": {0: 5}}, version=version, generation_id_or_member_epoch=4, member_id="m")
        assert answer is code
    with pytest.raises(LookupError):
        scene.shard("gone")


def test_group_with_members_accepts_their_commits_only(scene: WireScene) -> None:
    """A group with members accepts only their commits; an empty group accepts any commit."""
    member_id, generation = scene.join("members", ["t"])
    member = {"member_id": member_id, "generation_id_or_member_epoch": generation}
    assert scene.commit("members", {"t": {0: 5}}, **member) is NONE
    assert scene.commit("members", {"t": {0: 6}}) is ErrorCode.UNKNOWN_MEMBER_ID
    stranger = member | {"member_id": "stranger"}
    assert scene.commit("members", {"t": {0: 6}}, **stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    late = member | {"generation_id_or_member_epoch": generation - 1}
    assert scene.commit("members", {"t": {0: 6}}, **late) is ErrorCode.ILLEGAL_GENERATION
    assert scene.fetch("members", {"t": [0]}) == {("t", 0): (5, "")}
    scene.leave("members", member_id)
    assert scene.commit("members", {"t": {0: 6}}) is NONE


def test_commit_extends_the_session(scene: WireScene) -> None:
    member_id, generation = scene.join("alive", ["t"])
    member = {"member_id": member_id, "generation_id_or_member_epoch": generation}
    for _ in range(4):
        scene.cluster.run(20)
        assert scene.commit("alive", {"t": {0: 5}}, **member) is NONE
    scene.cluster.run(31)
    assert scene.commit("alive", {"t": {0: 6}}, **member) is ErrorCode.UNKNOWN_MEMBER_ID


def test_empty_group_id_may_have_offsets(scene: WireScene) -> None:
    """Old simple consumers commit with an empty group ID."""
    assert scene.commit("", {"t": {0: 5}}) is NONE
    assert scene.fetch("", {"t": [0]}) == {("t", 0): (5, "")}


def test_group_id_too_long_for_the_log_is_refused(scene: WireScene) -> None:
    name = "é" * 20_000
    body = {
        "group_id": name,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": topics_of({"t": {0: 5}}),
    }
    answer = scene.request(scene.plain_client, messages.OFFSET_COMMIT, body)
    assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.INVALID_GROUP_ID


def test_a_large_commit_has_a_separate_batch(scene: WireScene) -> None:
    """The log contains the offsets of a large commit in order, after those of the previous commit."""
    topics = topics_of({"t": {0: 5, 1: 6}})
    topics[0]["partitions"] *= LARGE_COMMIT_OFFSETS
    topics[0]["partitions"] += topics_of({"t": {1: 7}})[0]["partitions"]
    small = scene.commit("sliced", {"t": {0: 1}, "u": {0: 2}})
    assert (small, scene.commit("sliced", {}, topics=topics)) == (NONE, NONE)
    assert scene.fetch("sliced", None) == {("t", 0): (5, ""), ("t", 1): (7, ""), ("u", 0): (2, "")}
    offset_records = [
        (parse_offset_key(key), value)
        for key, value in scene.log_records(scene.shard("sliced"))
        if value and key[1] == 1
    ]
    records = [
        (key.partition, parse_offset_value(value).offset) for key, value in offset_records if key[:2] == ("sliced", "t")
    ]
    assert records == [(0, 1), *[(0, 5), (1, 6)] * LARGE_COMMIT_OFFSETS, (1, 7)]


def test_commit_too_large_for_one_batch_is_refused(scene: WireScene) -> None:
    """A commit is atomic, so it must fit into one batch."""
    topics = topics_of({"t": {0: (1, "m" * 20)}})
    topics[0]["partitions"] *= 20000
    assert scene.commit("large", {}, topics=topics) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    with pytest.raises(LookupError):
        scene.shard("large")


def test_offsets_are_deleted(scene: WireScene) -> None:
    """OffsetDelete removes offsets, accepts missing ones, and removes the group with its last offset."""
    scene.commit("forget", {"t": {0: 5, 1: 6}, "u": {0: 7}})
    answer = scene.delete_offsets("forget", {"t": [0, 9], "nowhere": [0]})
    assert answer["error_code"] == 0
    codes = [row["error_code"] for topic in answer["topics"] for row in topic["partitions"]]
    assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert scene.fetch("forget", None) == {("t", 1): (6, ""), ("u", 0): (7, "")}
    scene.delete_offsets("forget", {"t": [1], "u": [0]})
    assert scene.delete_offsets("forget", {"t": [1]})["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
    assert scene.delete_offsets("", {"t": [1]})["error_code"] == ErrorCode.INVALID_GROUP_ID


def test_offsets_of_subscribed_topics_are_not_deleted(scene: WireScene) -> None:
    """If the protocol type is unknown, all topics are treated as subscribed."""
    scene.commit("reading", {"t": {0: 5}, "u": {0: 7}})
    scene.join("reading", ["t"])
    answer = scene.delete_offsets("reading", {"t": [0], "u": [0]})
    codes = [row["error_code"] for topic in answer["topics"] for row in topic["partitions"]]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]
    assert scene.fetch("reading", None) == {("t", 0): (5, "")}
    scene.commit("workers", {"u": {0: 7}})
    scene.join("workers", [], protocol_type="connect")
    assert scene.delete_offsets("workers", {"u": [0]})["error_code"] == ErrorCode.NON_EMPTY_GROUP


def test_deleted_group_has_no_offsets(scene: WireScene) -> None:
    """DeleteGroups writes tombstones for all offsets."""
    scene.commit("deleted", {"t": {0: 5, 1: 6}})
    shard = scene.shard("deleted")
    answer = scene.request(scene.client("deleted"), messages.DELETE_GROUPS, {"groups_names": ["deleted"]})
    assert answer["results"][0]["error_code"] == 0
    assert scene.fetch("deleted", None) == {}
    tombstones = [parse_offset_key(key) for key, value in scene.log_records(shard) if value is None and key[1] == 1]
    assert [(key.topic, key.partition) for key in tombstones if key.group_id == "deleted"] == [("t", 0), ("t", 1)]


def test_offset_records_have_kafkas_format(scene: WireScene) -> None:
    """Records of offsets are readable by Kafka's tools."""
    scene.commit("written", {"t": {0: (5, "m", 2)}})
    records = scene.log_records(scene.shard("written"))
    offset_records = [
        (parse_offset_key(key), parse_offset_value(value)) for key, value in records if value and key[1] == 1
    ]
    key, value = next((key, value) for key, value in offset_records if key.group_id == "written")
    assert key == ("written", "t", 0)
    assert (value.offset, value.leader_epoch, value.metadata) == (5, 2, "m")
