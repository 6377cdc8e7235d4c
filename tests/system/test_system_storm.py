"""All faults at once: brokers and ZooKeeper die and pause while topics are created, deleted, grown and moved."""

import random
import threading
import time

import pytest
from steady_load import SOME, load

from kreplica.errors import ErrorCode
from kreplica.wire import messages
from tests.support.process_cluster import ProcessCluster, direct_places, wait_until
from tests.support.real_zookeeper import RealZooKeeper
from tests.support.server_process import ServerFailed

BROKERS = 4
TURNS = 15
TIMEOUT_MS = 3000
DELETE_BY_NAME_MAX = 5

pytestmark = pytest.mark.soak


class Operator:
    """Creates, deletes, grows and moves topics in a thread, ignoring the responses."""

    def __init__(self, cluster, seed):
        self.done = 0
        self._cluster = cluster
        self._random = random.Random(seed)
        self._topics = []
        self._count = 0
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operator", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._finishing.set()
        self._thread.join()

    def _run(self):
        while not self._finishing.wait(self._random.uniform(0, 0.3)):
            actions = [self._create, self._create, self._delete, self._grow, self._move, self._move, self._cancel]
            action = self._random.choice(actions) if self._topics else self._create
            try:
                self.done += action() is ErrorCode.NONE
            except (OSError, ServerFailed):
                pass  # no response, or no controller: the request may or may not take effect

    def _send(self, api, body, version=None):
        body = {"timeout_ms": TIMEOUT_MS, **body}
        return self._cluster.request(api, body, of=self._cluster.controller(), version=version)

    def _create(self):
        self._count += 1
        self._topics.append(f"storm-{self._count}")
        row = {
            "name": self._topics[-1],
            "num_partitions": self._random.randint(1, 20),
            "replication_factor": self._random.randint(1, 3),
            "assignments": [],
            "configs": [],
        }
        answer = self._send(messages.CREATE_TOPICS, {"topics": [row], "validate_only": False})
        return ErrorCode.of(answer["topics"][0]["error_code"])

    def _delete(self):
        name = self._topics.pop(self._random.randrange(len(self._topics)))
        answer = self._send(messages.DELETE_TOPICS, {"topic_names": [name]}, DELETE_BY_NAME_MAX)
        return ErrorCode.of(answer["responses"][0]["error_code"])

    def _grow(self):
        name = self._random.choice(self._topics)
        row = {"name": name, "count": len(self._cluster.partitions(name)) + 2, "assignments": None}
        answer = self._send(messages.CREATE_PARTITIONS, {"topics": [row], "validate_only": False})
        return ErrorCode.of(answer["results"][0]["error_code"])

    def _move(self):
        return self._reassign(lambda: self._random.sample(range(1, BROKERS + 1), self._random.randint(1, 3)))

    def _cancel(self):
        return self._reassign(lambda: None)

    def _reassign(self, replicas):
        name = self._random.choice(self._topics)
        rows = [{"partition_index": p, "replicas": replicas()} for p in self._cluster.partitions(name)]
        if not rows:
            return None
        answer = self._send(messages.ALTER_PARTITION_REASSIGNMENTS, {"topics": [{"name": name, "partitions": rows}]})
        return ErrorCode.of(answer["error_code"] or answer["responses"][0]["partitions"][0]["error_code"])


def inject_fault(cluster, zookeeper, rng):
    """Inject a random fault, and end it."""
    fault = rng.choice(["kill", "kill two", "stop", "pause", "zookeeper"])
    if fault == "zookeeper":
        (server,) = zookeeper.servers
        server.kill()
        time.sleep(rng.choice([0, 3]))
        server.start()
        zookeeper.wait_until_serving()
        return
    brokers = rng.sample(list(cluster.brokers.values()), 2 if fault == "kill two" else 1)
    for broker in brokers:
        {"stop": broker.stop, "pause": broker.pause}.get(fault, broker.kill)()
    time.sleep(rng.choice([0, rng.uniform(0, 5)]))
    for broker in brokers:
        if broker.paused:
            broker.resume()
    cluster.start()


def has_all_replicas_in_sync(row):
    return row["leader_id"] >= 0 and {*row["isr_nodes"]} == {*row["replica_nodes"]}


def find_inconsistencies(cluster):
    """Return deviations from the expected state after the faults, in the metadata of all brokers and in their files."""
    metadata = {broker_id: cluster.metadata(broker_id)["topics"] for broker_id in cluster.brokers}
    rows = {
        (broker_id, topic["name"], row["partition_index"]): row
        for broker_id, topics in metadata.items()
        for topic in topics
        for row in topic["partitions"]
    }
    problems = [(*key, row) for key, row in rows.items() if not has_all_replicas_in_sync(row)]
    by_name = [{topic["name"]: topic for topic in topics} for topics in metadata.values()]
    if any(topics != by_name[0] for topics in by_name):
        problems.append("the brokers' metadata differ")
    wanted = {(r, f"{topic}-{p}") for (_, topic, p), row in rows.items() for r in row["replica_nodes"]}
    present = {
        (broker.broker_id, path.name)
        for broker in cluster.brokers.values()
        for root in broker.log_directories
        for path in root.iterdir()
        if path.is_dir()
    }
    return problems + sorted(wanted ^ present)


@pytest.mark.parametrize("seed", range(3))
def test_storm(tmp_path, topic, seed):
    """No acknowledged record is lost, and every request takes effect completely or not at all."""
    rng = random.Random(seed)
    with (
        RealZooKeeper(tmp_path / "zookeeper") as zookeeper,
        ProcessCluster(
            tmp_path, direct_places(zookeeper.connect_string, BROKERS), settings={"log.segment.delete.delay.ms": 500}
        ) as cluster,
    ):
        with (
            load(cluster, topic, partitions=8, records_per_second=1000) as producer,
            Operator(cluster, seed) as operator,
        ):
            for _ in range(TURNS):
                inject_fault(cluster, zookeeper, rng)
                producer.wait_for_more(SOME, 60)
        assert operator.done > TURNS
        wait_until(
            lambda: not find_inconsistencies(cluster),
            "a consistent cluster",
            60,
            lambda: find_inconsistencies(cluster)[:20],
        )
