"""The exactly-once sink with Apache Kafka; these soak tests need Java and Maven."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from exactly_once_scene import CrashSimulation, all_values, decide_and_die, options, prepare, visible_values

from kreplica.blocking import Cluster
from kreplica.blocking.admin import create_topic
from kreplica.client_core.errors import UnsupportedVersion
from kreplica.spark.sink.exactly_once import commit_prepared
from kreplica.spark.source import range_reading

sys.path.append(str(Path(__file__).parents[1] / "interop"))

import apache_kafka
from kraft_cluster import KraftCluster

pytestmark = pytest.mark.soak

SEEDS = range(3)
MODES = ("one", "many")


@pytest.fixture(scope="module", params=[apache_kafka.KAFKA_VERSION, apache_kafka.NEWEST_VERSION])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three nodes of Apache Kafka."""
    try:
        apache_kafka.server_class_path(request.param)
        apache_kafka.class_path()
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tested with Apache Kafka: {missing}")
    with KraftCluster(tmp_path_factory.mktemp("kraft"), request.param) as kafka:
        with Cluster(kafka.bootstrap_servers) as client:
            for topic in ("redriven", "fewer", "strict", *(f"{mode}-{seed}" for mode in MODES for seed in SEEDS)):
                create_topic(client, topic, 2)
        yield kafka.bootstrap_servers
        range_reading.close_clusters()


def test_driver_dies_between_decision_and_commit(bootstrap: str) -> None:
    """The next driver commits the decided batch; lanes left by an attempt with more tasks are found and aborted."""
    sink = options(bootstrap, "redriven")
    decide_and_die(prepare(sink, 0, 3), sink, 1)
    commit_prepared(prepare(sink, 0, 2, "b"), sink)
    assert visible_values(bootstrap, "redriven") == all_values(0)
    prepare(sink, 1, 4, "b")
    commit_prepared(prepare(sink, 1, 2, "c"), sink)
    assert visible_values(bootstrap, "redriven") == all_values(0, 1)


def test_transactions_without_a_timeout(bootstrap: str) -> None:
    """Apache Kafka does not support them, so requiring them is an error."""
    sink = options(bootstrap, "strict", kreplica_two_phase="required")
    with pytest.raises(UnsupportedVersion, match="KIP-939"):
        prepare(sink, 0, 1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", MODES)
def test_random_crashes(bootstrap: str, mode: str, seed: int) -> None:
    """The same test as with kreplica brokers."""
    sink = options(bootstrap, f"{mode}-{seed}", kreplica_exactly_once=mode)
    simulation = CrashSimulation(sink, mode, seed)
    while simulation.committed < 4:
        simulation.step()
    last = simulation.committed + 1
    commit_prepared(prepare(sink, last, 1, "f"), sink)
    assert visible_values(bootstrap, f"{mode}-{seed}") == all_values(*range(last + 1))
