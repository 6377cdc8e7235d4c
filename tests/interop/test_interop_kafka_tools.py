"""Apache Kafka's command-line tools with three broker processes; needs Java and Maven, so it is part of the soak."""

import json
import re

import apache_kafka
import pytest

from tests.support.process_cluster import ProcessCluster, direct_places
from tests.support.real_zookeeper import RealZooKeeper

pytestmark = pytest.mark.soak

TOPICS = "TopicCommand"
REASSIGN = "reassign.ReassignPartitionsCommand"
ELECT = "LeaderElectionCommand"
RECORDS = 2000


@pytest.fixture(scope="module", autouse=True)
def _kafka():
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried with Apache Kafka's tools: {missing}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three brokers on a real ZooKeeper."""
    directory = tmp_path_factory.mktemp("tools")
    with (
        RealZooKeeper(directory / "zookeeper") as zookeeper,
        ProcessCluster(directory, direct_places(zookeeper.connect_string)) as cluster,
    ):
        yield cluster


def tool(cluster, main, *arguments):
    return apache_kafka.run_tool(main, cluster.bootstrap_servers, *arguments)


def described(text):
    """Parse the output of ``--describe``: partition -> (leader, replicas, in-sync replicas)."""
    pattern = r"Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S*)\s+Isr: (\S*)"
    return {
        int(partition): (int(leader), replicas.split(","), set(in_sync.split(",")))
        for partition, leader, replicas, in_sync in re.findall(pattern, text)
    }


def test_describe_shows_under_replicated_partitions(cluster, topic):
    """A killed broker leaves the in-sync set; ``--under-replicated-partitions`` lists its partitions."""
    assert f"Created topic {topic}." in tool(
        cluster, TOPICS, "--create", "--topic", topic, "--partitions", 3, "--replication-factor", 3
    )
    cluster.wait_until_in_sync(topic)
    assert described(tool(cluster, TOPICS, "--describe", "--topic", topic, "--under-replicated-partitions")) == {}
    victim = cluster.leader(topic, 0)
    cluster.brokers[victim].kill()
    survivors = {str(broker_id) for broker_id in cluster.brokers if broker_id != victim}
    cluster.wait_until_out_of_sync(topic, victim)
    under = described(tool(cluster, TOPICS, "--describe", "--topic", topic, "--under-replicated-partitions"))
    assert under.keys() == {0, 1, 2}
    assert all(in_sync == survivors and leader != victim for leader, _, in_sync in under.values())
    cluster.start()
    cluster.wait_until_in_sync(topic)
    assert described(tool(cluster, TOPICS, "--describe", "--topic", topic, "--under-replicated-partitions")) == {}


def test_leader_election(cluster, topic):
    """The preferred leaders are elected on request; a second request does nothing."""
    cluster.create_topic(topic, 3)
    victim = cluster.leader(topic, 0)
    cluster.brokers[victim].stop()
    cluster.start()
    cluster.wait_until_in_sync(topic)
    tool(cluster, ELECT, "--election-type", "preferred", "--all-topic-partitions")
    cluster.wait_until_in_sync(topic)
    rows = described(tool(cluster, TOPICS, "--describe", "--topic", topic))
    assert all(str(leader) == replicas[0] for leader, replicas, _ in rows.values())
    again = tool(cluster, ELECT, "--election-type", "preferred", "--topic", topic, "--partition", 0)
    assert "Valid replica already elected" in again


def test_reassignment(cluster, topic, tmp_path):
    """A plan is executed with a throttle; its verification removes the throttle; then nothing is left to cancel."""
    cluster.create_topic(topic, 2)
    plan = tmp_path / "plan.json"
    targets = {0: [1, 2], 1: [3, 1, 2]}
    rows = [{"topic": topic, "partition": partition, "replicas": replicas} for partition, replicas in targets.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    started = tool(cluster, REASSIGN, "--execute", "--reassignment-json-file", plan, "--throttle", 10_000_000)
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in started
    cluster.wait_until_in_sync(topic)
    verified = tool(cluster, REASSIGN, "--verify", "--reassignment-json-file", plan)
    for partition in targets:
        assert f"Reassignment of partition {topic}-{partition} is completed." in verified
    assert f"Clearing topic-level throttles on topic {topic}" in verified
    rows = described(tool(cluster, TOPICS, "--describe", "--topic", topic))
    assert {p: list(map(int, replicas)) for p, (_, replicas, _) in rows.items()} == targets
    assert "throttled" not in tool(cluster, TOPICS, "--describe", "--topic", topic)
    assert "None of the specified" in tool(cluster, REASSIGN, "--cancel", "--reassignment-json-file", plan)


def test_producer_and_consumer(cluster, topic):
    """The Java producer writes with ``acks=all``; the Java consumer reads all records."""
    cluster.create_topic(topic, 1)
    arguments = ("--topic", topic, "--max-messages", RECORDS, "--throughput", -1, "--acks", -1)
    events = [json.loads(line) for line in tool(cluster, "VerifiableProducer", *arguments).splitlines()]
    sent = {row["offset"]: row["value"] for row in events if row["name"] == "producer_send_success"}
    assert sorted(sent) == list(range(RECORDS))
    read = tool(
        cluster,
        "consumer.ConsoleConsumer",
        *("--topic", topic, "--partition", 0, "--offset", "earliest", "--max-messages", RECORDS),
    )
    assert read.split() == [sent[offset] for offset in range(RECORDS)]
