"""The test suites of Go clients with broker processes, without new failures."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import SETTINGS, SINGLE_BROKER_SETTINGS
from go_clients import FRANZ_GO, FRANZ_GO_ADMIN, KAFKA_GO, SARAMA, TOXIPROXY
from go_suites import GoSuite

from tests.support.broker_process import Place
from tests.support.links import COORDINATOR
from tests.support.namespaces import NamespaceLinks, are_permitted
from tests.support.process_cluster import ProcessCluster, wait_until
from tests.support.real_zookeeper import RealZooKeeper, ServerPlace
from tests.support.server_process import ServerProcess

HOST = 1
"""The node whose namespace contains brokers and tests that expect each other at fixed ports of ``localhost``."""

TOXIPROXY_PORT = 8474
SARAMA_PORT = 29090
INTERNAL_PORT = 9090

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]


@pytest.fixture(autouse=True)
def _needs_go() -> None:
    if shutil.which("go") is None:
        pytest.skip("no Go toolchain is installed")


def check(suite: GoSuite, cluster: ProcessCluster, outcomes: Mapping[str, str]) -> None:
    """Fail with all differences from the expected results, and the output of the brokers."""
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    print(f"{suite.project} {suite.version}: {len(outcomes)} tests ran, {passed} passed")
    differences = list(suite.differences(outcomes))
    assert not differences, "\n".join([*differences, cluster.output_ends()])


@pytest.mark.parametrize("suite", [FRANZ_GO, FRANZ_GO_ADMIN], ids=lambda suite: suite.project)
def test_franz_go(suite: GoSuite, cluster: ProcessCluster, tmp_path: Path) -> None:
    """Three brokers, three replicas: producers, groups with all balancers, transactions, administration."""
    check(suite, cluster, suite.run(tmp_path / "suite", {"KGO_SEEDS": cluster.bootstrap_servers}))


@contextmanager
def in_a_namespace(
    directory: Path, listeners: Mapping[int, Mapping[str, object]], settings: Mapping[str, object]
) -> Iterator[tuple[NamespaceLinks, ProcessCluster]]:
    """Run brokers in one network namespace, where ports of ``localhost`` are free.

    :param listeners: broker ID -> additional settings including listeners; the first one listens on all addresses.
    """
    if not are_permitted():
        pytest.skip("network namespaces are not permitted here")
    with NamespaceLinks(HOST) as links:
        zookeeper_place = ServerPlace(links.host(COORDINATOR), links.command_prefix(COORDINATOR))
        with RealZooKeeper(directory / "zookeeper", places=[zookeeper_place]) as zookeeper:
            place = links.places(zookeeper.connect_string)[HOST]
            places: dict[int, Place] = {}
            for broker_id, own in listeners.items():
                port = int(str(own["listeners"]).partition(",")[0].rpartition(":")[2])
                places[broker_id] = replace(place, port=port, advertised_port=port)
            cluster = ProcessCluster(directory, places, settings={**SETTINGS, **settings})
            for broker_id, own in listeners.items():
                cluster.brokers[broker_id].settings.update(own)
            with cluster:
                yield links, cluster
                assert cluster.tracebacks() == []


def test_kafka_go(tmp_path: Path) -> None:
    """One broker at localhost:9092, as in the suite's own configuration."""
    listeners = {1: {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://localhost:9092"}}
    # The suite expects Kafka's own limits of session timeouts.
    own = {"group.min.session.timeout.ms": 6000, "group.initial.rebalance.delay.ms": 0, "num.partitions": 1}
    settings = {**SINGLE_BROKER_SETTINGS, "message.max.bytes": 200_000_000, **own}
    with in_a_namespace(tmp_path, listeners, settings) as (links, cluster):
        for topic in ("test-writer-0", "test-writer-1"):
            cluster.create_topic(topic, 3, 1)
        check(KAFKA_GO, cluster, KAFKA_GO.run(tmp_path / "suite", {}, links.command_prefix(HOST)))


class Toxiproxy(ServerProcess):
    """The proxy in front of sarama's brokers, built from its module."""

    def __init__(self, directory: Path, links: NamespaceLinks) -> None:
        super().__init__(directory, b"Starting")
        self._links = links
        TOXIPROXY.unpack(directory / "source")
        build = ["go", "build", "-o", str(directory / "toxiproxy"), "./cmd/server"]
        environment = {**os.environ, "GOFLAGS": "-mod=mod"}
        subprocess.run(build, cwd=directory / "source", env=environment, check=True, capture_output=True)

    @property
    def url(self) -> str:
        return f"http://{self._links.host(HOST)}:{TOXIPROXY_PORT}"

    def command(self) -> list[str]:
        program = [str(self.directory / "toxiproxy"), "-host", "0.0.0.0", "-port", str(TOXIPROXY_PORT)]
        return [*self._links.command_prefix(HOST), *program]

    def add(self, name: str, listen: int, upstream: int) -> None:
        """Forward connections from one port of the namespace to another address."""
        body = {"name": name, "listen": f"0.0.0.0:{listen}", "upstream": f"127.0.0.1:{upstream}", "enabled": True}
        asked = urllib.request.Request(f"{self.url}/proxies", json.dumps(body).encode(), method="POST")
        urllib.request.urlopen(asked, timeout=10).close()


def test_sarama(tmp_path: Path) -> None:
    """Five brokers in racks behind toxiproxy; clients and brokers use separate listeners."""

    def own(broker_id: int) -> dict[str, object]:
        internal, outside = INTERNAL_PORT + broker_id, SARAMA_PORT - 10_000 + broker_id
        return {
            "broker.rack": broker_id,
            "listeners": f"INTERNAL://0.0.0.0:{internal},LOCAL://127.0.0.1:{outside}",
            "advertised.listeners": f"INTERNAL://127.0.0.1:{internal},LOCAL://127.0.0.1:{SARAMA_PORT + broker_id}",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,LOCAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
        }

    settings = {
        "default.replication.factor": 2,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 2,
        "transaction.state.log.replication.factor": 2,
        "transaction.state.log.min.isr": 1,
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": 0,
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
    listeners = {broker_id: own(broker_id) for broker_id in range(1, 6)}
    with in_a_namespace(tmp_path, listeners, settings) as (links, cluster):
        with Toxiproxy(tmp_path / "proxy", links) as proxy:
            wait_until(lambda: urllib.request.urlopen(f"{proxy.url}/version", timeout=5).status == 200, "toxiproxy")
            for broker_id in listeners:
                proxy.add(f"kafka{broker_id}", SARAMA_PORT + broker_id, SARAMA_PORT - 10_000 + broker_id)
            environment = {"TOXIPROXY_ADDR": f"http://127.0.0.1:{TOXIPROXY_PORT}"}
            outcomes = SARAMA.run(tmp_path / "suite", environment, links.command_prefix(HOST))
        check(SARAMA, cluster, outcomes)
