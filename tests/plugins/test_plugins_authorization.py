"""Authorization of each request and resource by a plugin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kreplica.interfaces import Operation, Principal, Resource, ResourceType
from kreplica.server.authorization import Permissions
from kreplica.server.authorization.rules import RULES
from kreplica.service.broker.api_table import VERSIONS_MIN
from kreplica.testing.cluster.cluster import LOG_DIRECTORY, SimulatedCluster
from kreplica.testing.simulator.simulation import Host
from kreplica.wire import messages
from kreplica.wire.batch_building import build_batch
from kreplica.wire.records import Record

ACL = f"{LOG_DIRECTORY}-acl"
TOPIC, GROUP, CLUSTER, TRANSACTIONAL = 29, 30, 31, 53


class Scene:
    """One broker that allows a guest only the operations passed to ``allow``, and other principals everything."""

    def __init__(self) -> None:
        overrides = ["kreplica.authorizer=acl-file", f"kreplica.plugin.acl-file.path={ACL}"]
        self.cluster = SimulatedCluster(3, overrides=overrides)
        disk = self.cluster.brokers[1].host.runtime.disk
        disk.make_directories(LOG_DIRECTORY)
        disk.write_file(ACL, b"* * *  # until the test replaces the authorizer\n")
        self.cluster.start()
        self.admin = self.cluster.client()
        for topic in ("open", "closed"):
            self.cluster.run_until(self.admin.create_topic(topic))
        self.guest = self.cluster.client()
        guest_id = self.guest.client_id
        self.allowed: set[tuple[Operation, str]] = set()
        self.permissions = self.cluster.brokers[1].program.plugins.permissions
        scene = self

        class Guests:
            def is_allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
                if principal.client_id != guest_id:
                    return True
                return (operation, resource.name) in scene.allowed

        self.permissions._authorizer = Guests()

    def allow(self, *allowed: tuple[Operation, str]) -> None:
        self.allowed = set(allowed)

    def ask(self, api: messages.Api, body: dict[str, Any], at_most: int | None = None) -> dict[str, Any]:
        return self.cluster.run_until(self.guest.request(api, body, at_most=at_most))


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.cluster.stop()


def batch() -> bytes:
    return build_batch([Record(-1, 1, None, b"v")])


def produce_body(*topics: str, acks: int = 1) -> dict[str, Any]:
    rows = [{"name": topic, "partition_data": [{"index": 0, "records": batch()}]} for topic in topics]
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": rows}


def test_produce(scene):
    """Records are written to allowed topics, and other topics get an error."""
    scene.allow((Operation.WRITE, "open"))
    answer = scene.ask(messages.PRODUCE, produce_body("open", "closed"))
    codes = {row["name"]: row["partition_responses"][0]["error_code"] for row in answer["responses"]}
    assert codes == {"open": 0, "closed": TOPIC}
    assert scene.cluster.run_until(scene.admin.read_all("closed", 0)) == []


def test_transactional_produce(scene):
    """The permission for the transactional ID is checked before those for topics."""
    scene.allow((Operation.WRITE, "open"))
    body = {**produce_body("open"), "transactional_id": "app"}
    row = scene.ask(messages.PRODUCE, body)["responses"][0]["partition_responses"][0]
    assert row["error_code"] == TRANSACTIONAL


@pytest.mark.parametrize("at_most", [11, None])
def test_fetch(scene, at_most):
    """Each fetch in a session returns records of the allowed topic, and an error for the other."""
    scene.allow((Operation.READ, "open"), (Operation.DESCRIBE, "open"), (Operation.DESCRIBE, "closed"))
    scene.cluster.run_until(scene.admin.produce("open", 0, batch()))
    rows = scene.cluster.run_until(scene.admin.metadata())["topics"]
    ids = {row["name"]: row["topic_id"] for row in rows}
    topics = [
        {
            "topic": name,
            "topic_id": ids[name],
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 2**20}],
        }
        for name in ("open", "closed")
    ]
    body = {"max_wait_ms": 0, "min_bytes": 0, "session_epoch": 0, "topics": topics}
    answer = scene.ask(messages.FETCH, body, at_most)
    codes = [row["partitions"][0]["error_code"] for row in answer["responses"]]
    assert codes == [0, TOPIC]
    again = {**body, "session_id": answer["session_id"], "session_epoch": 1, "topics": []}
    second = scene.ask(messages.FETCH, again, at_most)
    assert TOPIC in [row["partitions"][0]["error_code"] for row in second["responses"]]
    scene.allowed.add((Operation.READ, "closed"))
    third = scene.ask(messages.FETCH, {**again, "session_epoch": 2}, at_most)
    assert all(row["partitions"][0]["error_code"] == 0 for row in third["responses"])


@pytest.mark.parametrize("at_most", [0, 9, None])
def test_metadata(scene, at_most):
    """Forbidden topics get an error if they are requested by name, and are omitted from the list of all topics."""
    scene.allow((Operation.DESCRIBE, "open"))
    everything = scene.ask(messages.METADATA, {"topics": [] if at_most == 0 else None}, at_most)
    assert [row["name"] for row in everything["topics"]] == ["open"]
    body = {"topics": [{"name": "open"}, {"name": "closed"}], "allow_auto_topic_creation": False}
    named = scene.ask(messages.METADATA, body, at_most)
    assert {row["name"]: row["error_code"] for row in named["topics"]} == {"open": 0, "closed": TOPIC}
    scene.allow()
    nothing = scene.ask(messages.METADATA, {"topics": [] if at_most == 0 else None}, at_most)
    assert nothing["topics"] == []
    rejected = scene.ask(messages.METADATA, {**body, "topics": [{"name": "open"}]}, at_most)
    assert [row["error_code"] for row in rejected["topics"]] == [TOPIC]


@pytest.mark.parametrize("name", [None, "", "open"])
def test_metadata_by_id(scene, name):
    """A request by topic ID needs permission to describe that topic, whatever name the request contains."""
    rows = scene.cluster.run_until(scene.admin.metadata())["topics"]
    ids = {row["name"]: row["topic_id"] for row in rows}
    scene.allow((Operation.DESCRIBE, "open"))
    body = {"topics": [{"name": name, "topic_id": ids[each]} for each in ("open", "closed")]}
    answer = scene.ask(messages.METADATA, {**body, "allow_auto_topic_creation": True})
    answered = {row["topic_id"]: (row["name"], row["error_code"]) for row in answer["topics"]}
    assert answered == {ids["open"]: ("open", 0), ids["closed"]: (None, TOPIC)}


def test_authorized_operations(scene):
    """The response contains the allowed operations; the request itself is never refused."""
    scene.allow((Operation.DESCRIBE, "open"), (Operation.READ, "open"))
    before = scene.permissions.rejections
    body = {"topics": [{"name": "open"}], "include_topic_authorized_operations": True}
    body["include_cluster_authorized_operations"] = True
    answer = scene.ask(messages.METADATA, body, 10)
    assert answer["topics"][0]["topic_authorized_operations"] == 1 << 3 | 1 << 8
    assert answer["cluster_authorized_operations"] == 0, "the client may not describe the cluster"
    assert scene.permissions.rejections == before
    scene.allow((Operation.DESCRIBE, "kafka-cluster"), (Operation.CREATE, "kafka-cluster"))
    answer = scene.ask(messages.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": True})
    assert answer["cluster_authorized_operations"] == 1 << 5 | 1 << 8


def test_metadata_creates_no_topic_without_permission(scene):
    """A Metadata request creates a topic only with permission to create it."""
    scene.allow((Operation.DESCRIBE, "fresh"))
    body = {"topics": [{"name": "fresh"}], "allow_auto_topic_creation": True}
    assert scene.ask(messages.METADATA, body)["topics"][0]["error_code"] == TOPIC
    scene.allowed.add((Operation.CREATE, "fresh"))
    assert scene.ask(messages.METADATA, body)["topics"][0]["error_code"] != TOPIC


def test_create_and_delete_topics(scene):
    """Each topic needs permission by name; permission to create in the cluster covers all topics."""
    rows = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for name in ("mine", "yours")
    ]
    body = {"topics": rows, "timeout_ms": 5000, "validate_only": True}
    scene.allow((Operation.CREATE, "mine"))
    codes = {row["name"]: row["error_code"] for row in scene.ask(messages.CREATE_TOPICS, body)["topics"]}
    assert codes == {"mine": 0, "yours": TOPIC}
    scene.allow((Operation.CREATE, "kafka-cluster"))
    assert [row["error_code"] for row in scene.ask(messages.CREATE_TOPICS, body)["topics"]] == [0, 0]
    by_name = {"topic_names": ["closed"], "topics": [{"name": "closed"}], "timeout_ms": 100}
    for at_most in (5, None):
        assert scene.ask(messages.DELETE_TOPICS, by_name, at_most)["responses"][0]["error_code"] == TOPIC


def test_forbidden_topic_id(scene):
    """The error for a forbidden topic ID does not contain the topic's name."""
    scene.allow()
    rows = scene.cluster.run_until(scene.admin.metadata())["topics"]
    topic_id = next(row["topic_id"] for row in rows if row["name"] == "closed")
    asked = {"topics": [{"name": None, "topic_id": topic_id}], "timeout_ms": 100}
    (row,) = scene.ask(messages.DELETE_TOPICS, asked)["responses"]
    assert (row["error_code"], row["name"]) == (TOPIC, None)
    (row,) = scene.ask(messages.METADATA, asked)["topics"]
    assert (row["error_code"], row["name"]) == (TOPIC, None)


def test_settings(scene):
    """Topic settings need permission for the topic, broker settings for the cluster."""
    scene.allow((Operation.DESCRIBE_CONFIGS, "open"), (Operation.ALTER_CONFIGS, "kafka-cluster"))
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None, "configs": []}
        for kind, name in ((2, "open"), (2, "closed"), (4, "1"))
    ]
    shown = scene.ask(messages.DESCRIBE_CONFIGS, {"resources": resources})["results"]
    assert {row["resource_name"]: row["error_code"] for row in shown} == {"open": 0, "closed": TOPIC, "1": CLUSTER}
    body = {"resources": resources, "validate_only": True}
    altered = scene.ask(messages.INCREMENTAL_ALTER_CONFIGS, body)["responses"]
    assert {row["resource_name"]: row["error_code"] for row in altered} == {"open": TOPIC, "closed": TOPIC, "1": 0}


@pytest.mark.parametrize("at_most", [3, None])
def test_groups(scene, at_most):
    """Members need READ on their group; finding the coordinator of a group needs DESCRIBE."""
    scene.allow()
    found = scene.ask(messages.FIND_COORDINATOR, {"key": "g", "key_type": 0, "coordinator_keys": ["g"]}, at_most)
    assert GROUP in (found.get("error_code"), *(row["error_code"] for row in found.get("coordinators", ())))
    heartbeat = {"group_id": "g", "generation_id": 0, "member_id": "m"}
    assert scene.ask(messages.HEARTBEAT, heartbeat)["error_code"] == GROUP
    described = scene.ask(messages.DESCRIBE_GROUPS, {"groups": ["g"]})["groups"]
    assert [(row["group_id"], row["error_code"]) for row in described] == [("g", GROUP)]
    topics = [{"name": "closed", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    commit = {"group_id": "g", "topics": topics}
    assert scene.ask(messages.OFFSET_COMMIT, commit)["topics"][0]["partitions"][0]["error_code"] == GROUP
    scene.allow((Operation.READ, "g"))
    assert scene.ask(messages.OFFSET_COMMIT, commit)["topics"][0]["partitions"][0]["error_code"] == TOPIC
    assert scene.ask(messages.HEARTBEAT, heartbeat)["error_code"] != GROUP


def test_broker_requests(scene):
    """Commands to brokers and follower fetches need CLUSTER_ACTION."""
    scene.allow((Operation.READ, "open"))
    shutdown = {"broker_id": 1, "broker_epoch": -1}
    assert scene.ask(messages.CONTROLLED_SHUTDOWN, shutdown)["error_code"] == CLUSTER
    command = {"controller_id": 1, "controller_epoch": 99, "topic_states": [], "live_brokers": []}
    assert scene.ask(messages.UPDATE_METADATA, command)["error_code"] == CLUSTER
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    follow = {"replica_id": 1, "max_wait_ms": 0, "min_bytes": 0, "topics": [{"topic": "open", "partitions": [row]}]}
    assert scene.ask(messages.FETCH, follow, 11)["responses"][0]["partitions"][0]["error_code"] == TOPIC


def whole_answers() -> list[int]:
    return sorted(key for key in RULES if key in (10, 14, 11, 12, 13, 8, 9, 22, 24, 25, 26, 27, 28, 35, 43, 45, 46, 68))


@pytest.mark.parametrize("key", whole_answers(), ids=lambda key: messages.APIS[key].name)
def test_every_refusal_can_be_encoded(scene, key):
    """A refusal matches the response schema in every version; otherwise the connection would be closed."""
    scene.allow()
    api = messages.APIS[key]
    body = {
        "group_id": "g", "member_id": "m", "generation_id": 0, "transactional_id": "x", "producer_id": 1,
        "producer_epoch": 0, "committed": True, "topics": [], "markers": [], "key": "k", "coordinator_keys": ["k"],
        "groups": [{"group_id": "g", "topics": None}], "transaction_timeout_ms": 1, "protocol_type": "consumer",
        "protocols": [], "session_timeout_ms": 1, "assignments": [], "timeout_ms": 1, "topic_partitions": None,
        "v3_and_below_transactional_id": "x", "v3_and_below_producer_id": 1, "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": "t", "partitions": [0]}], "transactions": [], "member_epoch": 0,
    }  # fmt: skip
    for version in range(VERSIONS_MIN.get(key, api.versions[0]), api.versions[1] + 1):
        before = scene.permissions.rejections
        scene.ask(api, body, version)
        assert scene.permissions.rejections > before, f"version {version} did not call the authorizer"


def test_authorizer_that_raises(scene):
    """If the authorizer raises, the request is denied, and the error is reported to the plugin host."""
    reported = []

    class Failing:
        def is_allowed(self, principal, operation, resource):
            raise LookupError("no")

    class Connection:
        user = "User:ANONYMOUS"
        host, listener = "::1", "PLAINTEXT"

    class Request:
        connection, client_id = Connection, "app"

    permissions = Permissions(Failing(), reported.append)
    assert not permissions.allows(Request, Operation.READ, Resource(ResourceType.TOPIC, "t"))
    assert reported == ["checking whether ::1 may read topic t"]
    assert permissions.rejections == 1


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("host read", "line 1: HOST OPERATIONS RESOURCE is expected"),
        ("* reed topic:a", "there is no operation 'reed'"),
        ("* read a", "'a' is neither cluster nor TYPE:NAME"),
    ],
)
def test_malformed_rules_file(line, text):
    """The error for a malformed rules file names the line and the reason."""
    with pytest.raises(ValueError) as rejected:
        acl(line)
    assert text in str(rejected.value)


def acl(text: str) -> Any:
    from kreplica.plugins.acl_file import AclFile

    from kreplica.interfaces import PluginContext

    cluster = SimulatedCluster(1)
    host: Host = cluster.host("somewhere")
    host.runtime.disk.make_directories("/acl")
    host.runtime.disk.write_file("/acl/file", text.encode())
    return AclFile(PluginContext("acl-file", {"path": "/acl/file"}, host.runtime, None))


def test_rules_file():
    """A star at the end of an address or name matches any suffix; operations without a matching line are denied."""
    rules = acl("10.0.* *  *\n# nothing\n* read,describe topic:public-*  # all\n10.1.0.7 write cluster\n")

    def may(host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        return rules.is_allowed(Principal("User:ANONYMOUS", host, "PLAINTEXT", None), operation, Resource(kind, name))

    assert may("10.0.3.4", Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    assert may("9.9.9.9", Operation.READ, ResourceType.TOPIC, "public-news")
    assert not may("9.9.9.9", Operation.WRITE, ResourceType.TOPIC, "public-news")
    assert not may("9.9.9.9", Operation.READ, ResourceType.GROUP, "public-news")
    assert may("10.1.0.7", Operation.WRITE, ResourceType.CLUSTER, "kafka-cluster")
    assert not may("10.1.0.70", Operation.WRITE, ResourceType.CLUSTER, "kafka-cluster")
