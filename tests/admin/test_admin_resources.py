"""Admin resources (cluster, brokers, topics, partitions, settings, elections) of a broker that is not the controller.

There are three simulated brokers; one may die, and ZooKeeper may become unreachable.
"""

from __future__ import annotations

import pytest
from direct_calls import Direct
from twisted.internet.task import Clock

from kreplica.admin.http.problems import Problem
from kreplica.admin.peers.forwarding import NO_ADMIN_LISTENER, PeerResponses
from kreplica.admin.peers.registrations import RegistrationReader
from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime.stalls import StallWatch
from kreplica.service.admin.admin_site import resources
from kreplica.service.admin.load_resources import cluster_load
from kreplica.service.metrics.local_health import LocalHealth
from kreplica.testing.cluster.cluster import SimulatedCluster
from tests.support.broker_scene import batch

ASKED = 2


class NoOtherBrokers:
    """Other brokers, without admin listeners."""

    def __init__(self, broker_id):
        self._broker_id = broker_id
        self.requested = []

    async def request(self, broker_id, *arguments, **more):
        self.requested.append(broker_id)
        raise Problem(503, NO_ADMIN_LISTENER, f"broker {broker_id} has no admin listener")

    async def request_all(self, call, path, validator, read_local, **more):
        return PeerResponses({self._broker_id: await read_local()}, ["broker 1: broker 1 has no admin listener"])


@pytest.fixture
def cluster():
    made = SimulatedCluster(seed=3, brokers=3)
    made.start()
    assert made.controller() == 1
    return made


@pytest.fixture
def others():
    return NoOtherBrokers(ASKED)


@pytest.fixture
def api(cluster, others):
    broker = cluster.brokers[ASKED].program
    registrations = RegistrationReader(broker.runtime.reactor, broker.client)
    stalls = StallWatch(Clock())
    health = LocalHealth(broker, stalls)
    load = cluster_load(broker, stalls, health, registrations, others)
    return Direct(resources(broker, health, registrations, others, load), cluster.run_until)


def make(api, name="orders", **more):
    return api.document("POST", "/v1/topics", {"name": name, **more})


def row(rows, name):
    (found,) = [each for each in rows if each["name"] == name]
    return found


def test_cluster_summary(cluster, api):
    """The summary shows the controller, live brokers and problems before and after a broker dies."""
    make(api, assignment={"0": [1, 2], "1": [3, 2]})
    make(api, "single", assignment={"0": [3]})
    found = api.document("GET", "/v1/cluster")
    assert (found["broker_id"], found["controller"]) == (2, {"broker_id": 1, "epoch": 1})
    assert found["live_brokers"] == [1, 2, 3]
    assert (found["topics"], found["partitions"], found["under_replicated_partitions"]) == (2, 3, 0)
    assert found["zookeeper"]["session"] == "connected"
    cluster.brokers[3].kill()
    cluster.run(30)
    found = api.document("GET", "/v1/cluster")
    assert (found["live_brokers"], found["offline_partitions"], found["under_replicated_partitions"]) == ([1, 2], 1, 1)
    assert found["under_min_isr_partitions"] == 0


def test_cordoned_brokers_in_the_summary(cluster, api):
    """The summary has the cordoned brokers, whether or not they are alive."""
    assert api.document("GET", "/v1/cluster")["cordoned_brokers"] == []
    for broker in (3, 1):
        api.document("PUT", f"/v1/brokers/{broker}/cordon", {})
    cluster.brokers[3].kill()
    cluster.run(30)
    assert api.document("GET", "/v1/cluster")["cordoned_brokers"] == [1, 3]


def test_brokers(cluster, api):
    """Each broker is listed with its numbers of leaders and replicas; a dead one as long as it has replicas."""
    make(api, assignment={"0": [1, 2], "1": [3, 2]})
    first, second, third = api.document("GET", "/v1/brokers")["brokers"]
    assert (first["is_controller"], second["is_controller"]) == (True, False)
    assert [(each["leaders"], each["replicas"]) for each in (first, second, third)] == [(1, 1), (0, 2), (1, 1)]
    assert third["endpoints"] == ["PLAINTEXT://broker-3:9092"]
    one = api.document("GET", "/v1/brokers/3")
    assert [(each["partitions"], each["error"]) for each in one["log_dirs"]] == [(1, None)]
    cluster.brokers[3].kill()
    cluster.run(30)
    third = api.document("GET", "/v1/brokers/3")
    assert (third["live"], third["replicas"], third["broker_epoch"], third["log_dirs"]) == (False, 1, None, None)
    with pytest.raises(Problem) as refused:
        api.answer("GET", "/v1/brokers/4")
    assert (refused.value.status, refused.value.what_to_do) == (404, "Known brokers: 1, 2, 3.")


def test_only_requests_for_faults_wait_for_other_brokers(api, others):
    """Neither a list without the column ``faults`` nor a cordon requests faults from other brokers."""
    api.document("GET", "/v1/brokers", fields="broker_id,live")
    api.document("PUT", "/v1/brokers/3/cordon", {})
    assert others.requested == []
    api.document("GET", "/v1/brokers/3")
    assert others.requested == [1, 3]


def test_cordons(cluster, api):
    """No replica of a new topic is placed on a cordoned broker; cordoning it again only changes the reason."""
    done = api.document("PUT", "/v1/brokers/3/cordon", {"reason": "old"})
    assert [(each["operation"], each["data"]["reason"]) for each in done["znodes"]] == [("create", "old")]
    again = api.document("PUT", "/v1/brokers/3/cordon", {"reason": "older"})
    assert [(each["operation"], each["version"]) for each in again["znodes"]] == [("set", 0)]
    assert [each["cordoned"] for each in api.document("GET", "/v1/brokers")["brokers"]] == [False, False, True]
    cluster.run(1)
    placed = make(api, partitions=6, replication_factor=2)["assignment"].values()
    assert {broker for replicas in placed for broker in replicas} == {1, 2}
    assert len(api.document("DELETE", "/v1/brokers/3/cordon")["znodes"]) == 1
    assert api.document("DELETE", "/v1/brokers/3/cordon")["znodes"] == []
    with pytest.raises(Problem, match="broker 9 is not registered"):
        api.answer("PUT", "/v1/brokers/9/cordon", {})


def test_topic_pages(api):
    """Topics are listed by name, in pages, with a name filter, and with or without internal topics."""
    for name in ("b", "a", "Orders", "orders-2", "__consumer_offsets"):
        make(api, name, partitions=1)
    names, after = [], None
    while True:
        part = api.document("GET", "/v1/topics", limit=2, after=after)
        names += [each["name"] for each in part["topics"]]
        after = part["next"]
        if after is None:
            break
    assert names == ["Orders", "__consumer_offsets", "a", "b", "orders-2"]
    found = api.document("GET", "/v1/topics", search="ORD")["topics"]
    assert [each["name"] for each in found] == ["Orders", "orders-2"]
    assert "__consumer_offsets" not in str(api.document("GET", "/v1/topics", internal=False))


def test_topic(api):
    """A topic is created with settings, extended and deleted; dry runs change nothing."""
    tried = api.answer("POST", "/v1/topics", {"name": "orders", "partitions": 2}, dry_run=True)
    assert (tried.status, tried.document["led"]) == (200, False)
    assert api.document("GET", "/v1/topics")["topics"] == []
    made = api.answer("POST", "/v1/topics", {"name": "orders", "partitions": 2, "configs": {"segment.ms": 1000}})
    assert (made.status, made.location, made.document["led"]) == (201, "/v1/topics/orders", True)
    found = api.document("GET", "/v1/topics/orders")
    assert (found["partitions"], found["replication_factor"], found["deleting"]) == (2, 1, False)
    assert row(found["configs"], "segment.ms")["value"] == "1000"
    assert api.document("PATCH", "/v1/topics/orders", {"partitions": 3}, dry_run=True)["led"] is False
    assert list(api.document("PATCH", "/v1/topics/orders", {"partitions": 3})["assignment"]) == ["2"]
    assert api.document("DELETE", "/v1/topics/orders", dry_run=True)["deleted"] is False
    assert api.document("GET", "/v1/topics/orders")["partitions"] == 3
    assert api.document("DELETE", "/v1/topics/orders")["deleted"] is True
    assert api.document("GET", "/v1/topics")["topics"] == []


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/v1/topics", {"name": "orders"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("POST", "/v1/topics", {"name": "a", "replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("POST", "/v1/topics", {"name": "a", "assignment": {"0": [9]}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("POST", "/v1/topics", {"name": "a", "configs": {"retention": 1}}, ErrorCode.INVALID_CONFIG),
        ("PATCH", "/v1/topics/orders", {"partitions": 1}, ErrorCode.INVALID_PARTITIONS),
        ("PATCH", "/v1/topics/absent", {"partitions": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("DELETE", "/v1/topics/absent", None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("GET", "/v1/topics/orders/partitions/7", None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("PATCH", "/v1/configs/topics/orders", {"set": {"retention": 1}}, ErrorCode.INVALID_CONFIG),
        ("PATCH", "/v1/configs/brokers/1", {"set": {"listeners": "x"}}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_invalid_requests(api, method, path, body, code):
    """An invalid request gets the same error as in the Kafka protocol."""
    make(api, partitions=2)
    with pytest.raises(KafkaError) as refused:
        api.answer(method, path, body)
    assert refused.value.code is code


def test_assignment_and_replication_factor(api):
    """A request cannot have both an assignment and a replication factor."""
    with pytest.raises(Problem, match="has both an assignment"):
        make(api, partitions=1, assignment={"0": [1]})


def test_partitions(cluster, api):
    """Partitions are listed in order and in pages, for all topics or one, and can be filtered by state."""
    make(api, "b", assignment={"0": [1, 3], "1": [1, 2]})
    make(api, "a", assignment={"0": [3]})
    found, after = [], None
    while True:
        part = api.document("GET", "/v1/partitions", limit=1, after=after)
        found += [(each["topic"], each["partition"]) for each in part["partitions"]]
        after = part["next"]
        if after is None:
            break
    assert found == [("a", 0), ("b", 0), ("b", 1)]
    one = api.document("GET", "/v1/topics/b/partitions", limit=1, after=0)
    assert [each["partition"] for each in one["partitions"]] == [1]
    assert api.document("GET", "/v1/partitions", state="offline")["partitions"] == []
    cluster.brokers[3].kill()
    cluster.run(30)
    (offline,) = api.document("GET", "/v1/partitions", state="offline")["partitions"]
    assert (offline["topic"], offline["partition"], offline["leader"]) == ("a", 0, None)
    lagging = api.document("GET", "/v1/partitions", state="under_replicated")["partitions"]
    assert [(each["topic"], each["partition"], each["isr"]) for each in lagging] == [("b", 0, [1])]
    with pytest.raises(Problem, match="is not TOPIC/PARTITION"):
        api.answer("GET", "/v1/partitions", after="orders")


def test_reassignment(cluster, api):
    """A reassignment shows the added and removed replicas; a removed replica on a dead broker is not listed."""
    make(api, assignment={"0": [1, 3]})
    cluster.brokers[3].kill()
    cluster.run(30)
    client = cluster.brokers[ASKED].program.client
    moves = b'{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2]}]}'
    assert api.document("GET", "/v1/partitions", state="moving")["partitions"] == []
    cluster.run_until(client.create("/admin/reassign_partitions", moves))

    def moving():
        return api.document("GET", "/v1/partitions", state="moving")["partitions"]

    seen = next(filter(None, (moving() for _ in range(1000))))
    assert (seen[0]["adding"], seen[0]["removing"], seen[0]["read_only"]) == ([2], [3], False)
    cluster.run(30)
    assert moving() == []
    assert api.document("GET", "/v1/topics/orders/partitions")["partitions"][0]["replicas"] == [1, 2]


def test_partition(cluster, api):
    """A partition shows its epochs, offsets and size, whichever broker is its leader."""
    make(api, assignment={"0": [3, 1]})
    cluster.run(1)  # broker 3 learns of the topic
    client = cluster.client(broker=3)
    cluster.run_until(client.produce("orders", 0, batch(b"one", b"two")))
    cluster.run(1)
    found = api.document("GET", "/v1/topics/orders/partitions/0")
    assert (found["start_offset"], found["end_offset"], found["controller_epoch"]) == (0, 2, 1)
    assert found["size_bytes"] > 0
    assert found["eligible_leader_replicas"] == []


def test_topic_settings(cluster, api):
    """Settings are shown with their sources; a write based on an old version is refused."""
    make(api, partitions=1)
    first = api.answer("GET", "/v1/configs/topics/orders")
    assert row(first.document["configs"], "retention.ms")["is_default"] is True
    changed = api.answer("PATCH", "/v1/configs/topics/orders", {"set": {"retention.ms": 5}}, if_match=first.etag)
    assert changed.document["configs"][0]["source"] == "dynamic_topic_config"
    with pytest.raises(Problem) as refused:
        api.answer("PATCH", "/v1/configs/topics/orders", {"set": {"retention.ms": 6}}, if_match=first.etag)
    assert refused.value.status == 412
    assert api.answer("GET", "/v1/configs/topics/orders").etag == changed.etag
    api.answer("PATCH", "/v1/configs/topics/orders", {"remove": ["retention.ms"]}, if_match=changed.etag)
    again = row(api.document("GET", "/v1/configs/topics/orders")["configs"], "retention.ms")
    assert (again["value"], again["is_default"]) == ("604800000", True)
    with pytest.raises(Problem, match="the body contains no change"):
        api.answer("PATCH", "/v1/configs/topics/orders", {"set": {}})


def test_broker_settings(api):
    """Settings of one broker or of all brokers can be read and changed through any broker."""
    api.answer("PATCH", "/v1/configs/brokers/default", {"set": {"log.retention.ms": 1000}})
    api.answer("PATCH", "/v1/configs/brokers/3", {"set": {"log.retention.ms": 2000}})
    own = row(api.document("GET", "/v1/configs/brokers/3")["configs"], "log.retention.ms")
    assert (own["value"], own["source"]) == ("2000", "dynamic_broker_config")
    assert row(api.document("GET", "/v1/configs/brokers/3")["configs"], "broker.id")["value"] == "3"
    shared = api.document("GET", "/v1/configs/brokers/default")["configs"]
    assert [(each["name"], each["value"]) for each in shared] == [("log.retention.ms", "1000")]
    with pytest.raises(Problem, match="is not alive"):
        api.answer("PATCH", "/v1/configs/brokers/33", {"set": {"log.retention.ms": 1}})


def test_elections(cluster, api):
    """A preferred election restores preferred leaders; an unclean one elects a leader that may lack records."""
    make(api, assignment={"0": [3, 2]})
    cluster.brokers[3].kill()
    cluster.run(30)
    assert api.document("GET", "/v1/elections") == {"pending": [], "needed": []}
    nothing = api.document("POST", "/v1/elections", {"type": "unclean"})
    assert nothing["partitions"] == []
    cluster.run_until(cluster.brokers[3].start())
    cluster.run(30)
    (needed,) = api.document("GET", "/v1/elections")["needed"]
    assert (needed["partition"], needed["type"], needed["leader"], needed["replicas"]) == (0, "preferred", 2, [3, 2])
    tried = api.document("POST", "/v1/elections", {"type": "preferred"}, dry_run=True)
    assert tried["znodes"][0]["path"] == "/admin/preferred_replica_election"
    done = api.document("POST", "/v1/elections", {"type": "preferred"})
    assert done["partitions"] == [{"topic": "orders", "partition": 0, "leader": 3, "error": None}]
    every = [{"topic": "orders", "partition": 0}]
    assert api.document("POST", "/v1/elections", {"type": "unclean", "partitions": every})["znodes"] == []
    with pytest.raises(KafkaError, match="partition orders-7 does not exist"):
        api.answer("POST", "/v1/elections", {"type": "unclean", "partitions": [{"topic": "orders", "partition": 7}]})


def test_zookeeper_outage(cluster, api):
    """Without ZooKeeper, metadata can be read, members stored elsewhere in ZooKeeper are null, and writes fail."""
    make(api, partitions=1)
    cluster.zookeeper.kill()
    cluster.run(3)
    found = api.document("GET", "/v1/cluster")
    assert (found["controller"], found["zookeeper"]["session"]) == ({"broker_id": 1, "epoch": None}, "suspended")
    (partition,) = api.document("GET", "/v1/partitions")["partitions"]
    assert (partition["leader"] is not None, partition["adding"], partition["read_only"]) == (True, None, None)
    assert api.document("GET", "/v1/topics")["topics"][0]["deleting"] is None
    assert api.document("GET", "/v1/topics/orders/partitions/0")["partition_epoch"] is None
    with pytest.raises(Problem, match="stores the ongoing reassignments"):
        api.answer("GET", "/v1/partitions", state="moving")
    assert api.document("GET", "/v1/elections")["pending"] is None
    cluster.run_until(cluster.zookeeper.start())
