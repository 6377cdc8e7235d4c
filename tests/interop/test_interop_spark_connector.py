"""Spark's own Kafka connector with kreplica's brokers, compared with kreplica's; needs Maven: part of the soak.

Its jars are for Spark 4.2, and run in the installed Spark.  They are listed without their dependencies, which Spark
contains, in the newest version in Maven.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import apache_kafka
import pytest

from kreplica.blocking import Cluster, Producer, ProducerOptions
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)
PROGRAM = Path(__file__).with_name("spark_connector_program.py")
COUNT = 900
CODECS = 5
TOPICS = {"written-by-kafka": 3, "written-by-kreplica": 3, "transactions": 1, "stream": 3, "stream-copy": 3}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The output of the program."""
    jars = apache_kafka.jars_without_dependencies("spark-connector", JARS)
    with KafkaCluster(3, topics=TOPICS) as cluster:
        write_transactions(cluster.bootstrap_servers)
        folder = tmp_path_factory.mktemp("connectors")
        command = [sys.executable, str(PROGRAM), cluster.bootstrap_servers, str(folder), ",".join(map(str, jars))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1000, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def write_transactions(bootstrap: str) -> None:
    """Write two committed transactions and an aborted one between them."""
    with (
        Cluster(bootstrap) as cluster,
        Producer(cluster, ProducerOptions(transactional_id="connectors")) as producer,
    ):
        for number, commits in enumerate((True, False, True)):
            producer.begin()
            for index in range(10):
                producer.send("transactions", b"%d %d" % (number, index))
            producer.flush()  # unsent records would be missing after an abort
            if commits:
                producer.commit()
            else:
                producer.abort()


def test_schemas_are_equal(results: dict[str, Any]) -> None:
    theirs, ours = results["schemas"]
    assert ours == theirs


@pytest.mark.parametrize("writer", ["kafka", "kreplica"])
def test_both_connectors_read_records_of_either(results: dict[str, Any], writer: str) -> None:
    """Both connectors return equal rows for every codec, including null keys, headers, offsets and timestamps."""
    count = COUNT * CODECS
    assert results["written"][writer] == {"theirs": count, "ours": count, "different": 0}


@pytest.mark.parametrize(("level", "count"), [("read_committed", 20), ("read_uncommitted", 30)])
def test_both_connectors_read_transactions_alike(results: dict[str, Any], level: str, count: int) -> None:
    """Aborted records are skipped by both, or by neither."""
    assert results["isolation"][level] == {"theirs": count, "ours": count, "different": 0}


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsets", "endingOffsets", "minPartitions"])
def test_options_select_the_same_rows(results: dict[str, Any], option: str) -> None:
    """Options for the start and end of a read, and for its number of tasks, have the same effect in both connectors."""
    rows = results["options"][option]
    assert rows["different"] == 0
    assert 0 < rows["ours"] == rows["theirs"]


def test_a_checkpoint_works_with_both_connectors(results: dict[str, Any]) -> None:
    """A stream continues with the other connector: each record is copied once, and the offsets have the same format."""
    alternation = results["handed_over"]
    assert alternation["copied"] == [COUNT, 2 * COUNT, 3 * COUNT]
    assert alternation["missing"] == 0
    assert all(set(each) == {"stream"} and set(each["stream"]) == {"0", "1", "2"} for each in alternation["offsets"])
    assert sum(alternation["offsets"][-1]["stream"].values()) == 3 * COUNT
