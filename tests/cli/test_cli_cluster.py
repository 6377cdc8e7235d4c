"""The ``kreplica`` program on three running brokers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from fake_admin import run_here

from kreplica.cli import main
from tests.support.standalone import StandaloneProcess

Kreplica = Callable[..., str]
Read = Callable[..., Any]

RUN_BEFORE: set[tuple[object, ...]] = set()
"""Commands that have already been run as a process."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    options = ("--override", "default.replication.factor=2")
    with StandaloneProcess(tmp_path_factory.mktemp("cli"), brokers=3, arguments=options) as process:
        yield process


@pytest.fixture
def kreplica(brokers: StandaloneProcess) -> Kreplica:
    """Return a function that runs a command and returns its output.

    The first run of a command starts a process; later runs are in this process, which is faster.
    """

    def run_command(*words: object, status: int = 0, answer: str = "") -> str:
        command, typed = words[:3] if words[1] in ("config", "make") else words[:2], list(map(str, words))
        given = {"KREPLICA_ADMIN": brokers.admin_url}
        if command in RUN_BEFORE:
            here = CliRunner(env=given).invoke(main, typed, input=answer, obj=run_here, catch_exceptions=False)
            ended, out, errors = here.exit_code, here.stdout, here.stderr
        else:
            program = Path(sys.executable).with_name("kreplica")
            done = subprocess.run([program, *typed], env={**os.environ, **given}, input=answer, capture_output=True,
                                  text=True, timeout=100, check=False)  # fmt: skip
            ended, out, errors = done.returncode, done.stdout, done.stderr
            RUN_BEFORE.add(command)
        assert ended == status, errors or out
        return out if status == 0 else errors

    return run_command


@pytest.fixture
def read(brokers: StandaloneProcess) -> Read:
    """Return a function that runs a command in this process, which is faster, and returns its JSON."""

    def run_with_client(*words: object) -> Any:
        given = {"KREPLICA_ADMIN": brokers.admin_url}
        done = CliRunner(env=given).invoke(main, [*map(str, words), "--json"], obj=run_here, catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    return run_with_client


def test_topic_life_cycle(kreplica: Kreplica, read: Read) -> None:
    assert "Writes to ZooKeeper" in kreplica("topic", "create", "orders", "--partitions", 3, "--dry-run")
    assert kreplica("topic", "create", "orders", "--partitions", 3, "--config", "retention.ms=5000") == (
        "Created topic orders with 3 partitions of 2 replicas.\n"
    )
    assert "already exists" in kreplica("topic", "create", "orders", status=1)
    assert kreplica("topic", "grow", "orders", 4) == "Topic orders now has 4 partitions.\n"
    listed = kreplica("topic", "list", "--fields", "name,partitions,replication_factor,records,retention_ms,health")
    assert listed.splitlines()[1].split() == ["orders", "4", "2", "0", "5", "s", "healthy"]
    assert kreplica("topic", "list", "--filter", "health!=healthy") == "No topics match.\n"
    assert "Did you mean records?" in kreplica("topic", "list", "--sort", "record", status=1)
    assert "retention.ms=5000" in kreplica("topic", "show", "orders")
    kreplica("topic", "config", "set", "orders", "retention.ms=6000")
    assert "6000" in kreplica("topic", "config", "get", "orders", "retention.ms")
    kreplica("topic", "config", "remove", "orders", "retention.ms")
    assert kreplica("topic", "config", "get", "orders") == "All settings have their default values (see --all).\n"
    assert len(read("partition", "list", "--topic", "orders")["partitions"]) == 4
    assert kreplica("partition", "list", "--offline") == "No partitions match.\n"
    assert read("partition", "show", "orders:3")["replicas"] == read("partition", "list")["partitions"][3]["replicas"]
    assert kreplica("topic", "delete", "orders", answer="y\n").startswith("Topic orders ")
    assert read("topic", "list")["topics"] == []


def test_brokers_and_their_settings(kreplica: Kreplica, read: Read) -> None:
    assert read("cluster")["live_brokers"] == [1, 2, 3]
    assert [line.split()[0] for line in kreplica("broker", "list").splitlines()[1:]] == ["1", "2", "3"]
    connections = read("broker", "connections", 1, "--filter", "is_broker=true")["connections"]
    assert connections
    assert all(row["client_id"] is None or row["bytes_in"] > 0 for row in connections)
    kreplica("broker", "cordon", 3, "--reason", "trial")
    assert read("broker", "show", 3)["cordoned"] is True
    read("topic", "create", "elsewhere", "--partitions", 6)
    rows = read("partition", "list", "--topic", "elsewhere")["partitions"]
    assert {broker for row in rows for broker in row["replicas"]} == {1, 2}
    kreplica("broker", "uncordon", 3)
    assert read("broker", "show", 3)["cordoned"] is False
    kreplica("config", "set", "broker", "default", "log.retention.ms=123456")
    assert "123456" in kreplica("config", "get", "broker", 1, "log.retention.ms")
    read("config", "remove", "broker", "default", "log.retention.ms")


def test_plans(kreplica: Kreplica, read: Read) -> None:
    """A drained broker has no replicas when the command ends, and a rebalance moves replicas back to it."""
    read("topic", "create", "moved", "--assign", "0=1,2", "--assign", "1=2,3", "--assign", "2=3,1")
    output = kreplica("broker", "drain", 3, "--yes", "--comment", "trial")
    assert " completed (" in output
    assert read("broker", "show", 3)["replicas"] == 0
    plan = read("plan", "list")["plans"][0]
    assert (plan["kind"], plan["state"], plan["comment"]) == ("drain", "completed", "trial")
    moves = read("plan", "show", plan["id"], "--moves")["moves"]
    assert len(moves) == plan["progress"]["moves"] > 0
    assert json.loads(kreplica("plan", "watch", plan["id"], "--json"))["state"] == "completed"
    assert "can no longer be changed" in kreplica("plan", "set", plan["id"], "--throttle", "1MB", status=1)
    read("broker", "uncordon", 3)
    assert " completed (" in kreplica("plan", "make", "rebalance", answer="y\n")
    assert read("broker", "show", 3)["replicas"] > 0
    assert "was deleted" in kreplica("plan", "delete", plan["id"])


def test_plan_is_cancelled(kreplica: Kreplica, read: Read, brokers: StandaloneProcess) -> None:
    """The throttle of a plan is raised, and then the plan is cancelled."""
    read("topic", "create", "large", "--assign", "0=1")
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers})
    for number in range(200):
        producer.produce("large", os.urandom(10_000), key=str(number))
    producer.flush(20)
    document = read("plan", "make", "reassign", "large:0=2", "--throttle", "20kB", "--yes")
    plan_id = document["plan"]["id"]
    kreplica("plan", "set", plan_id, "--throttle", "30kB")
    assert read("plan", "show", plan_id)["throttle_bytes_per_second"] == 30_000
    kreplica("plan", "cancel", plan_id, "--yes")
    kreplica("plan", "watch", plan_id, status=1)
    assert read("plan", "show", plan_id)["state"] == "cancelled"
    assert read("partition", "show", "large:0")["replicas"] == [1]


def test_elections(kreplica: Kreplica, read: Read) -> None:
    read("topic", "create", "led", "--assign", "0=2,1")
    assert kreplica("election", "preferred", "led:0").splitlines()[1].split() == ["led", "0", "2"]
    assert kreplica("election", "unclean", "led:0", "--yes").splitlines()[1].split()[:2] == ["led", "0"]
    assert read("election", "list")["pending"] == []


def test_groups(kreplica: Kreplica, read: Read, brokers: StandaloneProcess) -> None:
    """Groups are described, their lag is shown, and their offsets are reset and deleted."""
    read("topic", "create", "read", "--partitions", 1)
    servers = {"bootstrap.servers": brokers.bootstrap_servers}
    producer = Producer(servers)
    for number in range(10):
        producer.produce("read", str(number))
    producer.flush(20)
    consumer = Consumer({**servers, "group.id": "a/group", "enable.auto.commit": False})
    consumer.committed([TopicPartition("read", 0)], timeout=30)  # wait for the coordinator
    consumer.commit(offsets=[TopicPartition("read", 0, 4)], asynchronous=False)
    consumer.close()
    assert "a/group" in kreplica("group", "list")
    assert read("group", "show", "a/group")["members"] == []
    assert re.search(r"^lag +6 records$", kreplica("group", "lag", "a/group"), re.MULTILINE)
    assert "Nothing was changed" in kreplica("group", "reset", "a/group", "--earliest")
    assert read("group", "lag", "a/group")["lag"] == 6
    kreplica("group", "reset", "a/group", "--shift", 3, "-t", "read:0", "--execute")
    assert read("group", "lag", "a/group")["lag"] == 3
    assert kreplica("why", "group", "a/group")
    assert kreplica("group", "delete", "a/group", "--yes") == "Group a/group was deleted.\n"
    assert "group 'a/group' does not exist" in kreplica("group", "show", "a/group", status=1)


def test_why_and_the_timeline(kreplica: Kreplica, read: Read) -> None:
    read("topic", "create", "explained", "--partitions", 1)
    assert "explained" in kreplica("timeline", "--limit", 1000)
    assert read("why", "partition", "explained:0")["summary"] in kreplica("why", "partition", "explained:0")
    plan_id = json.loads(kreplica("plan", "make", "add-partitions", "explained", 2, "--yes", "--json"))["plan"]["id"]
    assert kreplica("plan", "watch", plan_id).startswith(f"Plan {plan_id} completed")
    assert kreplica("why", "plan", plan_id)


def test_files_of_a_running_broker(kreplica: Kreplica, read: Read, brokers: StandaloneProcess) -> None:
    """Commands read a broker's log files while it writes them."""
    read("topic", "create", "stored", "--assign", "0=1")
    producer = Producer({"bootstrap.servers": brokers.bootstrap_servers})
    producer.produce("stored", "value", key="key")
    producer.flush(20)
    directory = brokers.data_directory / "broker-1"
    assert "no problems" in kreplica("log", "verify", directory, "--records")
    assert 'key "key"  value "value"' in kreplica("log", "dump", directory / "stored-0", "--records")


def test_the_controller_resigns(kreplica: Kreplica, read: Read) -> None:
    """When the controller resigns, another broker is elected, and the output of both commands names it."""
    before = read("controller", "show")
    assert "kreplica_resign" in kreplica("controller", "resign", "--dry-run")
    output = kreplica("controller", "resign")
    after = read("controller", "show")
    assert (after["epoch"], after["broker_id"] != before["broker_id"]) == (before["epoch"] + 1, True)
    assert output == (
        f"Broker {after['broker_id']} is the controller, epoch {after['epoch']} "
        f"(before: broker {before['broker_id']}, epoch {before['epoch']}).\n"
    )
    assert f"broker {after['broker_id']}, epoch {after['epoch']}" in kreplica("controller", "show")
