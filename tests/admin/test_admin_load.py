"""Load of topics, groups, brokers and connections, and its history, through any broker of a simulated cluster."""

from __future__ import annotations

import pytest
from direct_calls import DirectCluster
from twisted.internet.defer import Deferred

from kreplica import __version__
from kreplica.admin.http.problems import Problem
from kreplica.errors import KafkaError
from kreplica.runtime.interpreter import interpreter
from kreplica.testing.clients.coordinator_client import GROUP, CoordinatorClient
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.wire.batch_building import build_batch
from kreplica.wire.messages import JOIN_GROUP, OFFSET_COMMIT
from kreplica.wire.messages.consumer_protocol import SUBSCRIPTION, build_versioned
from kreplica.wire.records import Record

LOAD_FIELDS = "name,records,size_bytes,disk_bytes,records_in_rate,bytes_in_rate,bytes_out_rate,groups,health"


class Scene:
    """Three brokers; each leads a partition of ``orders``."""

    def __init__(self):
        self.cluster = SimulatedCluster(seed=5, brokers=3)
        self.cluster.start()
        self.client = self.cluster.client()
        self.run(self.client.create_topic("orders", 3, replication_factor=2))
        self.run(self.client.create_topic("idle", 1))
        self.cluster.run(2)
        self.apis = DirectCluster(self.cluster)
        self.leaders = {
            number: self.cluster.leader_client("orders", number, name=f"leader-{number}") for number in range(3)
        }

    def run(self, deferred):
        return self.cluster.run_until(deferred)

    def produce(self, partition, count):
        batch = build_batch([Record(index, 1, None, b"x" * 100) for index in range(count)])
        self.run(self.leaders[partition].produce("orders", partition, batch))

    def topics(self, broker_id=2, fields=LOAD_FIELDS, **query):
        document = self.apis[broker_id].document("GET", "/v1/topics", fields=fields, internal=False, **query)
        return {row["name"]: row for row in document["topics"]}

    def sample(self):
        """Take a load sample on each broker."""
        for broker_id in self.cluster.brokers:
            if self.apis.running(broker_id) is not None:
                self.run(Deferred.fromCoroutine(self.apis.loads[broker_id].sampler.sample()))


@pytest.fixture
def scene():
    return Scene()


def test_load_of_topics(scene):
    """Records and bytes are counted once per partition, disk usage per replica; rates cover the last seconds."""
    scene.topics()
    for partition, count in ((0, 30), (1, 20), (2, 10)):
        scene.produce(partition, count)
    scene.cluster.run(10)
    found = scene.topics()["orders"]
    assert (found["records"], found["health"], found["groups"]) == (60, "healthy", 0)
    assert found["disk_bytes"] == 2 * found["size_bytes"] > 6000
    assert found["records_in_rate"] == pytest.approx(6, rel=0.3)
    assert found["bytes_in_rate"] == pytest.approx(found["size_bytes"] / 10, rel=0.3)
    assert scene.topics()["idle"]["bytes_in_rate"] == 0
    scene.cluster.run(20)
    scene.topics()
    scene.cluster.run(20)
    assert scene.topics()["orders"]["records_in_rate"] == 0


def test_bytes_that_consumers_fetch(scene):
    """Bytes sent to consumers are counted, but not those sent to followers."""
    scene.produce(0, 30)
    scene.cluster.run(10)
    scene.topics()
    scene.run(scene.leaders[0].fetch("orders", 0, 0))
    scene.cluster.run(10)
    found = scene.topics()["orders"]
    assert found["bytes_out_rate"] == pytest.approx(found["size_bytes"] / 10, rel=0.3)


def test_broker_that_does_not_respond(scene):
    """If a broker does not respond, the load of the topics that it leads is unknown, and a notice says so."""
    scene.produce(0, 30)
    scene.run(scene.client.create_topic("other", 3))
    scene.cluster.run(5)
    queried, killed = (broker_id for broker_id in (1, 2, 3) if broker_id != scene.cluster.leader_of("idle", 0))
    scene.cluster.brokers[killed].kill()
    document = scene.apis[queried].document("GET", "/v1/topics", fields=LOAD_FIELDS, internal=False)
    assert document["problems"] == [f"broker {killed}: cannot send a request to broker {killed}"]
    assert {row["name"]: row["records"] for row in document["topics"]} == {"orders": None, "idle": 0, "other": None}


def commit(scene, group, offsets, *, topic="orders"):
    """Commit offsets with an OffsetCommit request to the coordinator."""
    rows = [
        {"partition_index": number, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
        for number, offset in offsets.items()
    ]
    topics = [{"name": topic, "partitions": rows}]
    body = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    client = coordinator_client(scene, group)
    code = scene.run(client.request_with_retries(OFFSET_COMMIT, body)).body["topics"][0]["partitions"][0]["error_code"]
    assert code == 0
    return client


def coordinator_client(scene, group):
    host = scene.cluster.host(f"client-of-{group}")
    brokers = [tuple(server.split(":")) for server in scene.cluster.bootstrap_servers.split(",")]
    addresses = [(name, int(port)) for name, port in brokers]
    return CoordinatorClient(host.reactor, addresses, group, GROUP, client_id=host.name)


def groups(scene, broker_id=2, **query):
    return scene.apis[broker_id].document("GET", "/v1/groups", **query)


def test_lag_of_groups(scene):
    """The lag includes all records of partitions without a commit, and the response has their number."""
    for partition, count in ((0, 30), (1, 20), (2, 10)):
        scene.produce(partition, count)
    commit(scene, "kitchen", {0: 25, 1: 20})
    commit(scene, "bar", {0: 30, 1: 20, 2: 10})
    fields = "group,lag,lag_without_commit,partitions,partitions_without_commit,topics,status,members,last_commit_at_ms"
    document = groups(scene, fields=fields, sort="-lag")
    kitchen, bar = document["groups"]
    assert kitchen.pop("last_commit_at_ms") > 1_600_000_000_000
    assert kitchen == {
        "group": "kitchen",
        "lag": 15,
        "lag_without_commit": 10,
        "partitions": 3,
        "partitions_without_commit": 1,
        "topics": ["orders"],
        "status": "STOPPED",
        "members": 0,
    }
    assert (bar["lag"], bar["partitions_without_commit"]) == (0, 0)
    assert (document["is_complete"], document["total"]) == (True, 2)
    assert [row["group"] for row in groups(scene, filter="lag>0")["groups"]] == ["kitchen"]
    assert scene.topics()["orders"]["groups"] == 2
    commit(scene, "elsewhere", {0: 0}, topic="idle")
    scene.cluster.run(3)  # loads are cached for two seconds
    assert [row["group"] for row in groups(scene, topic="orders")["groups"]] == ["bar", "kitchen"]
    assert groups(scene, topic="idle", fields="state")["total"] == 1


def test_lag_of_one_group_by_partition(scene):
    """A partition without a commit has a row without an offset, and all its records as lag."""
    scene.produce(2, 10)
    commit(scene, "kitchen", {0: 0})
    lag = scene.apis[3].document("GET", "/v1/groups/kitchen/lag")
    assert (lag["lag"], lag["lag_without_commit"], lag["partitions_without_commit"]) == (10, 10, 2)
    rows = [(row["partition"], row["committed_offset"], row["log_end_offset"], row["lag"]) for row in lag["partitions"]]
    assert rows == [(0, 0, 0, 0), (1, None, 0, 0), (2, None, 10, 10)]
    assert lag["partitions"][2]["status"] is None


def test_subscribed_topic_without_commits(scene):
    """A group with members includes partitions of subscribed topics before its first commit."""
    scene.produce(0, 7)
    commit(scene, "other", {0: 7, 1: 0, 2: 0})  # creates the offsets topic
    scene.cluster.run(2)
    client = coordinator_client(scene, "new")
    body = {
        "group_id": "new",
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": build_versioned(SUBSCRIPTION, 1, {"topics": ["orders"]})}],
    }
    member = scene.run(client.request(JOIN_GROUP, body, at_most=5))["member_id"]
    joining = Deferred.fromCoroutine(client.request(JOIN_GROUP, {**body, "member_id": member}, at_most=5))
    scene.run(joining)
    (row,) = groups(scene, fields="lag,partitions_without_commit,members", filter="group=new")["groups"]
    assert row == {"group": "new", "lag": 7, "partitions_without_commit": 3, "members": 1}


def test_group_that_does_not_exist(scene):
    """The error for a missing group names it."""
    commit(scene, "kitchen", {0: 0})
    with pytest.raises(KafkaError, match="group 'nosuch' does not exist"):
        scene.apis[1].document("GET", "/v1/groups/nosuch/lag")


def test_brokers(scene):
    """Live metrics are columns of the broker list; a broker that is not running has none."""
    scene.topics()
    scene.sample()
    scene.produce(0, 30)
    scene.cluster.run(5)
    scene.sample()
    fields = "version,python,connections,log_bytes,bytes_in_rate,messages_in_rate,offline_log_dirs,usable_bytes"
    rows = scene.apis[2].document("GET", "/v1/brokers", fields=f"broker_id,{fields}", sort="-log_bytes")["brokers"]
    sizes = [row["log_bytes"] for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 3000
    assert {row["version"] for row in rows} == {__version__}
    assert {row["python"] for row in rows} == {str(interpreter())}
    assert sum(row["messages_in_rate"] for row in rows) == pytest.approx(6, rel=0.3)
    assert all(row["connections"] > 0 and row["usable_bytes"] > 0 for row in rows)
    scene.cluster.brokers[3].kill()
    scene.cluster.run(30)
    rows = scene.apis[2].document("GET", "/v1/brokers", fields="live,version", filter="version=null")["brokers"]
    assert rows == [{"broker_id": 3, "live": False, "version": None}]


def test_history(scene):
    """Any broker returns the points of all brokers at the same times; waiting and processing are separate series."""
    scene.topics()
    scene.sample()
    for _ in range(3):
        scene.produce(0, 30)
        scene.cluster.run(5)
        scene.sample()
    series = "bytes_in,messages_in,produce_ms,produce_wait_ms,fetch_wait_ms,under_replicated,log_bytes"
    document = scene.apis[2].document("GET", "/v1/history", series=series, **{"from": -60_000})
    assert (document["step_ms"], document["points"]) == (5000, 13)
    rows = {row["broker_id"]: row["series"] for row in document["brokers"]}
    assert sorted(rows) == [1, 2, 3]
    leader = scene.cluster.leader_of("orders", 0)
    messages = [value for value in rows[leader]["messages_in"]["mean"] if value is not None]
    assert messages == [pytest.approx(6, rel=0.3)] * 3
    waits = [value for value in rows[leader]["produce_wait_ms"]["mean"] if value is not None]
    assert waits, "produce requests with acks=all wait for the follower"
    # A follower's fetch waits for up to replica.fetch.wait.max.ms.
    fetch_waits = [value for value in rows[leader]["fetch_wait_ms"]["mean"] if value is not None]
    assert max(fetch_waits) > 100
    assert all(value < 50 for value in rows[leader]["produce_ms"]["mean"] if value is not None)
    longer = scene.apis[1].document("GET", "/v1/history", series="connections", **{"from": -6 * 3_600_000})
    assert (longer["step_ms"], longer["points"]) == (60_000, 360)


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ({"series": "bytes"}, "series: unknown series 'bytes'"),
        ({"from": 2**50}, "from: the start is after the end of the range, or in the future"),
    ],
)
def test_invalid_history(scene, query, detail):
    """The problem for an invalid history request names the parameter."""
    with pytest.raises(Problem) as refused:
        scene.apis[1].document("GET", "/v1/history", **query)
    assert refused.value.detail == detail


def test_connections(scene):
    """The list has the connections of the broker in the path, with the names of their clients."""
    client = scene.cluster.client(broker=3)
    scene.run(client.metadata())
    rows = scene.apis[1].document("GET", "/v1/brokers/3/connections", fields="client_id,in_flight,is_broker,user")
    names = [row["client_id"] for row in rows["connections"]]
    assert any(name and name.startswith("client-") for name in names), names
    assert {row["user"] for row in rows["connections"]} == {"User:ANONYMOUS"}
    assert any(row["is_broker"] for row in rows["connections"])
    first = scene.apis[1].document("GET", "/v1/brokers/3/connections", limit=1)["connections"][0]
    assert first["opened_at_ms"] > 1_600_000_000_000
    assert first["bytes_in"] is None, "the simulated network has no counters"
    with pytest.raises(Problem, match="broker 9 is not alive") as unknown:
        scene.apis[1].document("GET", "/v1/brokers/9/connections")
    assert unknown.value.status == 404
    scene.cluster.brokers[3].kill()
    with pytest.raises(Problem, match="cannot send a request to broker 3"):
        scene.apis[1].document("GET", "/v1/brokers/3/connections")
