"""Consumer groups with Apache Kafka's consumer and tools, and records of groups read by both systems.

Needs Java and Maven, so it is part of the soak.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import apache_kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from twisted.internet.task import Clock

from kreplica.groups.classic.group import ClassicGroup
from kreplica.groups.config import GroupsConfig
from kreplica.groups.offsets import Offsets
from kreplica.groups.shard import GroupShard
from kreplica.runtime import Runtime
from kreplica.wire.batches import iter_headers
from kreplica.wire.records import iter_records
from tests.support.standalone import StandaloneProcess

pytestmark = pytest.mark.soak

GROUPS = "consumer.group.ConsumerGroupCommand"
PARTITIONS = 4
RECORDS = 100
DEADLINE_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    try:
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not compared with Apache Kafka: {missing}")


def fill(bootstrap_servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(20)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(20) == 0


def rows(text: str) -> list[list[str]]:
    """Return the words of each line of a table, without its header."""
    return [line.split() for line in text.strip().splitlines()[1:] if line.strip()]


def wait_until_true(reached: Any, what: str) -> Any:
    end = time.monotonic() + DEADLINE_S
    while not (found := reached()):
        assert time.monotonic() < end, what
        time.sleep(0.5)
    return found


def test_java_consumers_and_tools(broker: StandaloneProcess, topic: str) -> None:
    """Two Java consumers share partitions, and Kafka's tool lists, describes, resets and deletes their group."""
    servers, group = broker.bootstrap_servers, f"java-{topic}"
    fill(servers, topic)
    java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", apache_kafka.class_path()]
    reader = ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", servers, "--from-beginning"]
    command = [*java, *reader, "--topic", topic, "--group", group]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
    try:

        def shared() -> bool:
            if group not in apache_kafka.run_tool(GROUPS, servers, "--list"):
                return False
            members = rows(apache_kafka.run_tool(GROUPS, servers, "--describe", "--group", group, "--members"))
            return [row[4] for row in members] == ["2", "2"]

        wait_until_true(shared, "two members share four partitions")
        (state,) = rows(apache_kafka.run_tool(GROUPS, servers, "--describe", "--group", group, "--state"))
        assert state[-3:] == ["range", "Stable", "2"]
        assert [group, "Classic"] in rows(apache_kafka.run_tool(GROUPS, servers, "--list", "--type"))
    finally:
        for process in readers:
            process.terminate()
    printed = [line for process in readers for line in process.communicate(timeout=30)[0].split()]
    assert sorted(printed) == sorted(b"%d" % number for number in range(RECORDS))
    described = rows(apache_kafka.run_tool(GROUPS, servers, "--describe", "--group", group))
    assert sorted(row[2:6] for row in described) == [[str(index), "25", "25", "0"] for index in range(PARTITIONS)]
    apache_kafka.run_tool(
        GROUPS, servers, "--reset-offsets", "--group", group, "--topic", f"{topic}:0", "--to-earliest", "--execute"
    )
    apache_kafka.run_tool(GROUPS, servers, "--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    described = rows(apache_kafka.run_tool(GROUPS, servers, "--describe", "--group", group, "--offsets"))
    assert sorted(row[2:4] for row in described) == [["0", "0"], ["2", "25"], ["3", "25"]]
    assert "was successful" in apache_kafka.run_tool(GROUPS, servers, "--delete", "--group", group)
    assert group not in apache_kafka.run_tool(GROUPS, servers, "--list")


def read_in_group(servers: str, topic: str, group: str) -> dict[str, Any]:
    """Read all records with two members and commit.

    :return: assigned partitions by client ID, as the members report them.
    """
    consumers = {}
    for name in ("one", "two"):
        consumers[name] = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "client.id": name,
                "group.instance.id": f"static-{name}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumers[name].subscribe([topic])

    def shared() -> bool:
        for consumer in consumers.values():
            consumer.poll(0.2)
        return [len(consumer.assignment()) for consumer in consumers.values()] == [2, 2]

    wait_until_true(shared, "two members share four partitions")
    assigned = {name: {row.partition for row in consumer.assignment()} for name, consumer in consumers.items()}
    for consumer in consumers.values():
        offsets = [TopicPartition(topic, row.partition, 10 + row.partition) for row in consumer.assignment()]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()  # static members do not leave
    return assigned


def test_kafka_reads_kreplicas_records(topic: str, tmp_path: Path) -> None:
    """Kafka's decoder reads the group and offset records in kreplica's log."""
    with StandaloneProcess(tmp_path) as process:
        fill(process.bootstrap_servers, topic)
        assigned = read_in_group(process.bootstrap_servers, topic, "ours")
    logs = [path for path in tmp_path.rglob("*.log") if "__consumer_offsets" in str(path) and path.stat().st_size]
    (path,) = logs
    shown = apache_kafka.dump_log("--offsets-decoder", "--files", str(path))
    values = [
        (json.loads(key)["data"], json.loads(value)["data"])
        for key, value in re.findall(r"key: (\{.*\}) payload: (\{.*\})", shown)
    ]
    assert len(values) == shown.count("| offset:")
    group = [value for key, value in values if key == {"group": "ours"}][-1]
    assert group["protocol"] == "range"
    shares = {
        member["clientId"]: set(member["assignment"]["assignedPartitions"][0]["partitions"])
        for member in group["members"]
    }
    assert shares == assigned
    assert {member["groupInstanceId"] for member in group["members"]} == {"static-one", "static-two"}
    offsets = {key["partition"]: value["offset"] for key, value in values if "partition" in key}
    assert offsets == {index: 10 + index for index in range(PARTITIONS)}


def test_kreplica_reads_kafkas_records(topic: str, tmp_path: Path) -> None:
    """A group of Apache Kafka is loaded unchanged: members, assignments and offsets."""
    log_directory = tmp_path / "kafka"
    with (
        apache_kafka.zookeeper(tmp_path) as zookeeper,
        apache_kafka.broker(tmp_path, zookeeper, log_directory) as kafka,
    ):
        fill(kafka.bootstrap_servers, topic)
        assigned = read_in_group(kafka.bootstrap_servers, topic, "theirs")
        kafka.stop()
    shard = loaded((log_directory / "__consumer_offsets-0" / f"{0:020}.log").read_bytes())
    group = shard.group("theirs")
    assert isinstance(group, ClassicGroup)
    assert (group.state_name, group.protocol, group.protocol_type) == ("Stable", "range", "consumer")
    assert group.is_subscribed_to(topic)
    members = {member.client_id: member for member in group.roster.members.values()}
    assert {member.instance_id for member in members.values()} == {"static-one", "static-two"}
    assert assigned.keys() == members.keys()
    for index in range(PARTITIONS):
        committed = shard.offsets.committed("theirs", topic, index)
        assert committed is not None
        assert committed.offset == 10 + index
    shard.unload()


def loaded(data: bytes) -> GroupShard:
    """Return a shard loaded from a segment."""
    clock = cast(Any, Clock())
    nothing = cast(Any, None)
    runtime = Runtime(clock, nothing, nothing, random.Random(1), lambda: 0)
    view = cast(Any, SimpleNamespace())
    shard = GroupShard(runtime, nothing, view, GroupsConfig(), Offsets(nothing))
    for position, header in iter_headers(data):
        for record in iter_records(data[position : position + header.size]):
            assert record.key is not None
            shard.replay(bytes(record.key), None if record.value is None else bytes(record.value), header)
    shard.loaded()
    return shard
