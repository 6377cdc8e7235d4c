"""Valid requests of group members and of tools that inspect groups, in every version."""

from __future__ import annotations

from typing import Any

from transaction_checks import SOON

from kreplica.wire import messages
from kreplica.wire.messages import Api
from tests.support.broker_scene import Scene

MEMBER_ID_REQUIRED = 79


async def ask(scene: Scene, api: Api, body: dict[str, Any], version: int) -> dict[str, Any]:
    """Send a request, and retry it while the coordinator is still loading its partition."""
    for _ in range(200):
        answer = await scene.ask(api, body, version)
        if answer.get("error_code", 0) not in SOON:
            return answer
        await scene.sleep(0.05)
    raise AssertionError(answer)


async def find(scene: Scene) -> None:
    await ask(scene, messages.FIND_COORDINATOR, {"key": "g", "key_type": 0}, 1)


def _join_body(group_id: str, member_id: str = "") -> dict[str, Any]:
    return {
        "group_id": group_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"topics"}],
    }


async def member_of(scene: Scene, group_id: str, version: int) -> dict[str, Any]:
    """Join a group as its only member and return the response."""
    await find(scene)
    answer = await ask(scene, messages.JOIN_GROUP, _join_body(group_id), version)
    if answer["error_code"] == MEMBER_ID_REQUIRED:
        assert version >= 4, "members of older versions do not know that they must join again"
        answer = await ask(scene, messages.JOIN_GROUP, _join_body(group_id, answer["member_id"]), version)
    assert answer["error_code"] == 0
    return answer


def _member_fields(group_id: str, joined: dict[str, Any]) -> dict[str, Any]:
    return {"group_id": group_id, "generation_id": joined["generation_id"], "member_id": joined["member_id"]}


async def synced(scene: Scene, group_id: str, version: int = 3) -> dict[str, Any]:
    """Return the group ID, generation and member ID of the only member of a stable group."""
    member = _member_fields(group_id, await member_of(scene, group_id, 5))
    mine = {"member_id": member["member_id"], "assignment": b"mine"}
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    answer = await ask(scene, messages.SYNC_GROUP, member | protocol | {"assignments": [mine]}, version)
    assert (answer["error_code"], bytes(answer["assignment"])) == (0, b"mine")
    return member


async def _join_group(scene: Scene, version: int) -> None:
    answer = await member_of(scene, f"joins-{version}", version)
    assert answer["leader"] == answer["member_id"]
    assert answer["protocol_name"] == "range"
    assert [bytes(member["metadata"]) for member in answer["members"]] == [b"topics"]


async def _sync_group(scene: Scene, version: int) -> None:
    await synced(scene, f"syncs-{version}", version)


async def _heartbeat(scene: Scene, version: int) -> None:
    member = await synced(scene, f"beats-{version}")
    assert (await scene.ask(messages.HEARTBEAT, member, version))["error_code"] == 0
    assert (await scene.ask(messages.HEARTBEAT, member | {"generation_id": 99}, version))["error_code"] == 22


async def _leave_group(scene: Scene, version: int) -> None:
    member = await synced(scene, f"leaves-{version}")
    leaving = {"member_id": member["member_id"], "members": [{"member_id": member["member_id"]}]}
    answer = await scene.ask(messages.LEAVE_GROUP, {"group_id": member["group_id"]} | leaving, version)
    assert answer["error_code"] == 0
    assert (await scene.ask(messages.HEARTBEAT, member, 0))["error_code"] == 25


async def _describe_groups(scene: Scene, version: int) -> None:
    member = await synced(scene, f"described-{version}")
    body = {"groups": [member["group_id"], "unknown"], "include_authorized_operations": False}
    stable, unknown = (await scene.ask(messages.DESCRIBE_GROUPS, body, version))["groups"]
    assert (stable["error_code"], stable["group_state"], stable["protocol_data"]) == (0, "Stable", "range")
    (row,) = stable["members"]
    assert (row["member_id"], bytes(row["member_assignment"])) == (member["member_id"], b"mine")
    assert unknown["group_state"] == "Dead"


async def _list_groups(scene: Scene, version: int) -> None:
    member = await synced(scene, f"listed-{version}")
    answer = await ask(scene, messages.LIST_GROUPS, {"states_filter": ["Stable"], "types_filter": []}, version)
    assert answer["error_code"] == 0
    rows = {row["group_id"]: row for row in answer["groups"]}
    assert rows[member["group_id"]]["protocol_type"] == "consumer"
    assert rows[member["group_id"]].get("group_state", "Stable") == "Stable"


async def _delete_groups(scene: Scene, version: int) -> None:
    member = await synced(scene, f"deleted-{version}")
    await commit(scene, f"simple-{version}", 7)
    answer = await scene.ask(
        messages.DELETE_GROUPS, {"groups_names": [member["group_id"], f"simple-{version}", "unknown"]}, version
    )
    assert [row["error_code"] for row in answer["results"]] == [68, 0, 69]


def _commit_body(group_id: str, version: int, offset: int) -> dict[str, Any]:
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "note"}
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time_ms": -1,
        "topics": [{"name": "t", "partitions": [row | ({"commit_timestamp": -1} if version == 1 else {})]}],
    }


async def commit(scene: Scene, group_id: str, offset: int, version: int = 7) -> int:
    """Commit an offset without being a member, and return the error code."""
    await find(scene)
    for _ in range(200):
        answer = await scene.ask(messages.OFFSET_COMMIT, _commit_body(group_id, version, offset), version)
        code: int = answer["topics"][0]["partitions"][0]["error_code"]
        if code not in SOON:
            return code
        await scene.sleep(0.05)
    raise AssertionError(answer)


async def _offset_commit(scene: Scene, version: int) -> None:
    assert await commit(scene, f"commits-{version}", 3, version) == 0


async def _offset_fetch(scene: Scene, version: int) -> None:
    group_id = f"fetches-{version}"
    assert await commit(scene, group_id, 5) == 0
    topics = [{"name": "t", "partition_indexes": [0, 9]}]
    body = {"group_id": group_id, "topics": topics, "groups": [{"group_id": group_id, "topics": topics}]}
    answer = await scene.ask(messages.OFFSET_FETCH, body | {"require_stable": True}, version)
    group = answer["groups"][0] if version >= 8 else answer
    assert group.get("error_code", 0) == 0
    rows = [
        (row["partition_index"], row["committed_offset"], row["metadata"]) for row in group["topics"][0]["partitions"]
    ]
    assert rows == [(0, 5, "note"), (9, -1, "")]


async def _offset_delete(scene: Scene, version: int) -> None:
    assert await commit(scene, "forgets", 5) == 0
    body = {"group_id": "forgets", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
    answer = await scene.ask(messages.OFFSET_DELETE, body, version)
    assert (answer["error_code"], answer["topics"][0]["partitions"][0]["error_code"]) == (0, 0)


async def _consumer_group_heartbeat(scene: Scene, version: int) -> None:
    await consumer_of(scene, f"next-{version}", version)


async def consumer_of(scene: Scene, group_id: str, version: int) -> dict[str, Any]:
    """Join a consumer group (KIP-848) as its only member, and wait until the topic is assigned."""
    await find(scene)
    body = {
        "group_id": group_id,
        "member_id": "me" if version >= 1 else "",
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    answer = await ask(scene, messages.CONSUMER_GROUP_HEARTBEAT, body, version)
    assert answer["error_code"] == 0, answer["error_message"]
    (given,) = answer["assignment"]["topic_partitions"]
    assert (given["topic_id"], list(given["partitions"])) == (scene.broker.metadata.topic_id("t"), [0])
    return answer


async def _consumer_group_describe(scene: Scene, version: int) -> None:
    group_id = f"shown-{version}"
    joined = await consumer_of(scene, group_id, 1)
    body = {"group_ids": [group_id], "include_authorized_operations": False}
    (group,) = (await scene.ask(messages.CONSUMER_GROUP_DESCRIBE, body, version))["groups"]
    assert (group["error_code"], group["group_epoch"]) == (0, joined["member_epoch"])
    (member,) = group["members"]
    assert (member["member_id"], list(member["subscribed_topic_names"])) == ("me", ["t"])


GROUP_CHECKS = {
    messages.JOIN_GROUP: _join_group,
    messages.SYNC_GROUP: _sync_group,
    messages.HEARTBEAT: _heartbeat,
    messages.LEAVE_GROUP: _leave_group,
    messages.DESCRIBE_GROUPS: _describe_groups,
    messages.LIST_GROUPS: _list_groups,
    messages.DELETE_GROUPS: _delete_groups,
    messages.OFFSET_COMMIT: _offset_commit,
    messages.OFFSET_FETCH: _offset_fetch,
    messages.OFFSET_DELETE: _offset_delete,
    messages.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    messages.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
}
