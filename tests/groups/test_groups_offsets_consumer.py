"""Offsets of KIP-848 groups: commits and fetches carry the member epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from offsets_wire import WireScene, wire_scene

from kreplica.errors import ErrorCode
from kreplica.wire import messages

NONE = ErrorCode.NONE
MEMBER_IDS_FROM = 9


@pytest.fixture(scope="module")
def scene() -> Iterator[WireScene]:
    with wire_scene() as scene:
        yield scene


def heartbeat(scene: WireScene, group: str, member_id: str, epoch: int, topics: list[str] | None = None) -> int:
    """Send a heartbeat; return the member epoch."""
    body = {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": epoch,
        "rebalance_timeout_ms": 30_000 if topics is not None else -1,
        "subscribed_topic_names": topics,
        "topic_partitions": [] if topics is not None else None,
    }
    answer = scene.request(scene.client(group), messages.CONSUMER_GROUP_HEARTBEAT, body)
    assert answer["error_code"] == 0, ErrorCode.of(answer["error_code"])
    return answer["member_epoch"]


def fetch_as(scene: WireScene, group: str, member_id: str | None, epoch: int) -> Any:
    """Return the committed offset of t-0, or the group's error code."""
    rows = [{"name": "t", "partition_indexes": [0]}]
    requested_group = {"group_id": group, "member_id": member_id, "member_epoch": epoch, "topics": rows}
    answer = scene.request(
        scene.client(group), messages.OFFSET_FETCH, {"groups": [requested_group], "require_stable": True}
    )
    found = answer["groups"][0]
    if found["error_code"]:
        return ErrorCode.of(found["error_code"])
    return found["topics"][0]["partitions"][0]["committed_offset"]


def test_commits_and_fetches_check_the_member_epoch(scene: WireScene) -> None:
    """Outdated epochs and unknown members are rejected; administrative fetches are not."""
    epoch = heartbeat(scene, "modern", "one", 0, ["t"])
    member = {"member_id": "one", "version": MEMBER_IDS_FROM}
    assert scene.commit("modern", {"t": {0: 5}}, generation_id_or_member_epoch=epoch, **member) is NONE
    stale = scene.commit("modern", {"t": {0: 6}}, generation_id_or_member_epoch=epoch + 1, **member)
    assert stale is ErrorCode.STALE_MEMBER_EPOCH
    assert scene.commit("modern", {"t": {0: 6}}, version=MEMBER_IDS_FROM) is ErrorCode.UNKNOWN_MEMBER_ID
    old = scene.commit("modern", {"t": {0: 6}}, version=8, member_id="one", generation_id_or_member_epoch=epoch)
    assert old is ErrorCode.UNSUPPORTED_VERSION
    assert fetch_as(scene, "modern", "one", epoch) == 5
    assert fetch_as(scene, "modern", "one", epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert fetch_as(scene, "modern", "two", epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch_as(scene, "modern", None, -1) == 5
    assert scene.fetch("modern", None, version=5) == {("t", 0): (5, "")}


def test_offsets_of_subscribed_topics_are_not_deleted(scene: WireScene) -> None:
    epoch = heartbeat(scene, "deleting", "one", 0, ["t"])
    member = {"member_id": "one", "generation_id_or_member_epoch": epoch, "version": MEMBER_IDS_FROM}
    assert scene.commit("deleting", {"t": {0: 5}, "u": {0: 6}}, **member) is NONE
    answer = scene.delete_offsets("deleting", {"t": [0], "u": [0]})
    codes = [row["error_code"] for topic in answer["topics"] for row in topic["partitions"]]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE]
    assert heartbeat(scene, "deleting", "one", -1) == -1
    answer = scene.delete_offsets("deleting", {"t": [0]})
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0
    assert scene.fetch("deleting", None) == {}


def test_group_without_members_accepts_any_commit(scene: WireScene) -> None:
    heartbeat(scene, "left", "one", 0, ["t"])
    heartbeat(scene, "left", "one", -1)
    assert scene.commit("left", {"t": {0: 7}}, version=MEMBER_IDS_FROM) is NONE
    assert fetch_as(scene, "left", None, -1) == 7
