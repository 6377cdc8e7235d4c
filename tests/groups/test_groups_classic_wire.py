"""Group APIs through a broker, in every version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kreplica.client.errors import ConnectionLost
from kreplica.errors import ErrorCode
from kreplica.testing.clients.coordinator_client import GROUP, CoordinatorClient
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.wire import messages
from kreplica.wire.messages import Api

OPERATIONS_UNKNOWN = -(2**31)
SYNC_PROTOCOL_FROM = 5
"""First version of SyncGroup that must name the protocol."""


class Scene:
    """One broker, and a client with one connection.

    :ivar group_id: the group of the running test.
    """

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(1)
        self.cluster.start()
        reactor = self.cluster.host("client").reactor
        self.client = CoordinatorClient(reactor, [("broker-1", BROKER_PORT)], "any", GROUP, client_id="reader")
        self.group_id = ""
        self.cluster.run_until(self.client.request_with_retries(messages.LIST_GROUPS, {}))

    def request(self, api: Api, version: int, **body: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.cluster.run_until(self.client.request(api, body, at_most=version))
        return answer

    def join(self, version: int, member_id: str = "", **fields: Any) -> dict[str, Any]:
        return self.request(messages.JOIN_GROUP, version, **self.join_body(member_id) | fields)

    def join_body(self, member_id: str = "") -> dict[str, Any]:
        protocols = [{"name": "range", "metadata": b"topics"}]
        return {
            "group_id": self.group_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": protocols,
            "reason": "to read",
        }

    def join_alone(self, version: int = 3, **fields: Any) -> dict[str, Any]:
        """Join as the only member and return the response."""
        joined = self.join(version, **fields)
        if joined["error_code"] == ErrorCode.MEMBER_ID_REQUIRED:
            joined = self.join(version, joined["member_id"], **fields)
        assert joined["error_code"] == 0
        return joined

    def sync(self, version: int, joined: dict[str, Any], **fields: Any) -> dict[str, Any]:
        body = {
            "group_id": self.group_id,
            "generation_id": joined["generation_id"],
            "member_id": joined["member_id"],
            "assignments": [{"member_id": joined["member_id"], "assignment": b"read this"}],
        }
        if version >= SYNC_PROTOCOL_FROM:
            body |= {"protocol_type": joined.get("protocol_type"), "protocol_name": joined["protocol_name"]}
        return self.request(messages.SYNC_GROUP, version, **body | fields)

    def join_and_sync(self, **fields: Any) -> dict[str, Any]:
        joined = self.join_alone(9, **fields)
        assert self.sync(5, joined, group_instance_id=fields.get("group_instance_id"))["error_code"] == 0
        return joined


@pytest.fixture(scope="module")
def shared_scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.cluster.run_until(scene.client.close())
    scene.cluster.stop()


@pytest.fixture
def scene(shared_scene: Scene, request: pytest.FixtureRequest) -> Scene:
    shared_scene.group_id = request.node.name
    return shared_scene


def versions(api: Api) -> list[int]:
    return list(range(api.versions[0], api.versions[1] + 1))


@pytest.mark.parametrize("version", versions(messages.JOIN_GROUP))
def test_join(scene: Scene, version: int) -> None:
    """From version 4 a new member gets its ID first; the leader gets the list of members."""
    joined = scene.join(version)
    if version >= 4:
        assert joined["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
        assert joined["member_id"].startswith("reader-")
        assert joined["protocol_name"] == (None if version >= 7 else "")
        joined = scene.join(version, joined["member_id"])
    assert joined["error_code"] == 0
    assert joined["generation_id"] == 1
    assert joined["protocol_name"] == "range"
    assert joined["leader"] == joined["member_id"]
    assert [(row["member_id"], row["metadata"]) for row in joined["members"]] == [(joined["member_id"], b"topics")]
    if version >= 7:
        assert joined["protocol_type"] == "consumer"


@pytest.mark.parametrize("version", [5, 6, 7, 8, 9])
def test_static_member_joins(scene: Scene, version: int) -> None:
    """A static member's ID starts with its instance ID; from version 9 the response has skip_assignment."""
    first = scene.join_and_sync(group_instance_id="one")
    assert first["member_id"].startswith("one-")
    again = scene.join(version, group_instance_id="one")
    assert again["error_code"] == 0
    assert again["generation_id"] == 1
    if version >= 9:
        assert again["skip_assignment"]
        assert [row["group_instance_id"] for row in again["members"]] == ["one"]
    else:
        assert again["leader"] == first["member_id"]
        assert again["members"] == []


def test_join_group_0_has_one_timeout(scene: Scene) -> None:
    """In version 0, the session timeout is also the rebalance timeout."""
    scene.join_alone(0, session_timeout_ms=7000)
    group = scene.cluster.brokers[1].program.coordinators.groups.shards.shard_of(scene.group_id).classic(scene.group_id)
    (member,) = group.roster.members.values()
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (7000, 7000)


@pytest.mark.parametrize("version", versions(messages.SYNC_GROUP))
def test_sync(scene: Scene, version: int) -> None:
    """The leader's assignment is returned once it is committed."""
    joined = scene.join_alone(9)
    synced = scene.sync(version, joined)
    assert (synced["error_code"], synced["assignment"]) == (0, b"read this")
    if version >= 5:
        assert (synced["protocol_type"], synced["protocol_name"]) == ("consumer", "range")
        refused = scene.sync(version, joined, protocol_type="connect", protocol_name="range")
        assert refused["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.sync(version, joined, generation_id=0)["error_code"] == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions(messages.HEARTBEAT))
def test_heartbeat(scene: Scene, version: int) -> None:
    """A member gets no error; another client gets UNKNOWN_MEMBER_ID."""
    joined = scene.join_and_sync()
    body = {"group_id": scene.group_id, "generation_id": 1, "member_id": joined["member_id"]}
    assert scene.request(messages.HEARTBEAT, version, **body)["error_code"] == 0
    stranger = scene.request(messages.HEARTBEAT, version, **body | {"member_id": "x"})
    assert stranger["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    if version >= 3:
        fenced = scene.request(messages.HEARTBEAT, version, **body, group_instance_id="x")
        assert fenced["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(messages.LEAVE_GROUP))
def test_leave(scene: Scene, version: int) -> None:
    """Before version 3 one member leaves per request; from then on several may, with a result for each."""
    member_id = scene.join_and_sync(group_instance_id="one")["member_id"]
    if version < 3:
        left = [
            scene.request(messages.LEAVE_GROUP, version, group_id=scene.group_id, member_id=each)["error_code"]
            for each in ("x", member_id)
        ]
        assert left == [ErrorCode.UNKNOWN_MEMBER_ID, 0]
    else:
        members = [{"member_id": "x"}, {"member_id": "", "group_instance_id": "one"}]
        left = scene.request(messages.LEAVE_GROUP, version, group_id=scene.group_id, members=members)
        assert left["error_code"] == 0
        assert [(row["member_id"], row["group_instance_id"], row["error_code"]) for row in left["members"]] == [
            ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
            ("", "one", 0),
        ]
    nameless = scene.request(messages.LEAVE_GROUP, version, group_id="", member_id="x", members=[{"member_id": "x"}])
    assert nameless["error_code"] == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", versions(messages.DESCRIBE_GROUPS))
def test_describe(scene: Scene, version: int) -> None:
    """A missing group is described as dead; from version 6 its error is GROUP_ID_NOT_FOUND."""
    joined = scene.join_and_sync(group_instance_id="one")
    answer = scene.request(
        messages.DESCRIBE_GROUPS, version, groups=[scene.group_id, "nothing"], include_authorized_operations=True
    )
    found, missing = answer["groups"]
    assert (found["error_code"], found["group_state"]) == (0, "Stable")
    assert (found["protocol_type"], found["protocol_data"]) == ("consumer", "range")
    (member,) = found["members"]
    assert member["member_id"] == joined["member_id"]
    assert (member["client_id"], member["client_host"]) == ("reader", "/client")
    assert (member["member_metadata"], member["member_assignment"]) == (b"topics", b"read this")
    if version >= 3:
        assert found["authorized_operations"] == 0b1_0100_1000
    if version >= 4:
        assert member["group_instance_id"] == "one"
    assert (missing["group_state"], missing["members"]) == ("Dead", [])
    assert missing["error_code"] == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 6:
        assert missing["error_message"] == "Group nothing not found."
        assert missing["authorized_operations"] == OPERATIONS_UNKNOWN


@pytest.mark.parametrize("version", versions(messages.LIST_GROUPS))
def test_list(scene: Scene, version: int) -> None:
    """From version 4 groups have states and can be filtered by state; from version 5 the same applies to types."""
    scene.join_and_sync()
    listed = scene.request(messages.LIST_GROUPS, version)
    assert listed["error_code"] == 0
    (row,) = [row for row in listed["groups"] if row["group_id"] == scene.group_id]
    assert row["protocol_type"] == "consumer"
    if version >= 4:
        assert row["group_state"] == "Stable"
        assert row not in scene.request(messages.LIST_GROUPS, version, states_filter=["Empty"])["groups"]
        assert row in scene.request(messages.LIST_GROUPS, version, states_filter=["Empty", "stable"])["groups"]
    if version >= 5:
        assert row["group_type"] == "classic"
        assert scene.request(messages.LIST_GROUPS, version, types_filter=["consumer"])["groups"] == []


@pytest.mark.parametrize("version", versions(messages.DELETE_GROUPS))
def test_delete(scene: Scene, version: int) -> None:
    """A group with members is not deleted; each distinct group of the request has one result."""
    member_id = scene.join_and_sync()["member_id"]

    def delete(*groups: str) -> list[tuple[str, int]]:
        answer = scene.request(messages.DELETE_GROUPS, version, groups_names=list(groups))
        return [(row["group_id"], row["error_code"]) for row in answer["results"]]

    assert delete() == []
    assert delete(scene.group_id, "nothing", scene.group_id) == [
        (scene.group_id, ErrorCode.NON_EMPTY_GROUP),
        ("nothing", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    scene.request(messages.LEAVE_GROUP, 2, group_id=scene.group_id, member_id=member_id)
    assert delete(scene.group_id) == [(scene.group_id, 0)]
    assert delete(scene.group_id) == [(scene.group_id, ErrorCode.GROUP_ID_NOT_FOUND)]


def test_client_disconnects_while_joining(scene: Scene) -> None:
    """A client that disconnects while joining does not affect other members."""
    scene.join_and_sync()
    waiting = Deferred.fromCoroutine(scene.client.request(messages.JOIN_GROUP, scene.join_body(), at_most=3))
    scene.cluster.run(1)
    scene.cluster.run_until(scene.client.close())
    with pytest.raises(ConnectionLost):
        scene.cluster.run_until(waiting)
    # The client has not received its member ID and cannot rejoin, so only the first member remains.
    answer = scene.request(messages.DESCRIBE_GROUPS, 5, groups=[scene.group_id])
    assert len(answer["groups"][0]["members"]) == 1
    scene.cluster.run(11)
    assert scene.request(messages.DESCRIBE_GROUPS, 5, groups=[scene.group_id])["groups"][0]["group_state"] == "Empty"
