"""Brokers for upstream test suites, and for equivalent scenarios."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_scene import Scene

from tests.support.broker_process import direct_place
from tests.support.coordinator import CoordinatorProcess
from tests.support.process_cluster import ProcessCluster

SETTINGS = {
    # Suites write to topics that they do not create.
    "auto.create.topics.enable": "true",
    "num.partitions": 4,
    # Groups form without delay.
    "group.initial.rebalance.delay.ms": 200,
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
    # Short limits for requests that must fail because of them.
    "group.min.session.timeout.ms": 1000,
    "group.consumer.heartbeat.interval.ms": 200,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
SINGLE_BROKER_SETTINGS = {
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


@contextmanager
def run_cluster(directory: Path, brokers: range, settings: Mapping[str, object]) -> Iterator[ProcessCluster]:
    with CoordinatorProcess(directory / "coordinator") as coordinator:
        places = {broker_id: direct_place(coordinator.address) for broker_id in brokers}
        with ProcessCluster(directory, places, settings={**SETTINGS, **settings}) as cluster:
            yield cluster
            assert cluster.tracebacks() == []


@pytest.fixture
def broker_zero(tmp_path: Path) -> Iterator[ProcessCluster]:
    """A single new broker with ID 0, as suites expect."""
    with run_cluster(tmp_path / "broker-zero", range(1), SINGLE_BROKER_SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """Three brokers with three replicas of all partitions."""
    with run_cluster(tmp_path_factory.mktemp("cluster"), range(1, 4), {}) as three:
        yield three


@pytest.fixture
def topic(cluster: ProcessCluster) -> str:
    """A new topic of two partitions."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    cluster.create_topic(name, partitions=2)
    return name


@pytest.fixture
def scene(cluster: ProcessCluster) -> Iterator[Scene]:
    """Clients of confluent-kafka."""
    scene = Scene(cluster.bootstrap_servers)
    yield scene
    scene.close()
