"""Runs the client matrix on kreplica, and in the soak on Apache Kafka 3.9 and its newest 4.x.

``docs/reference/client-matrix.md`` describes the scenarios.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_kafka
import matrix_scenarios
import pytest
from matrix_clusters import KREPLICA, NAMES, VERSIONS, UnderTest, run_cluster
from matrix_page import PAGE, text
from matrix_producer import JAVA_PARTITION_COUNT, JAVA_PARTITIONS
from matrix_table import Scenario
from matrix_world import World

from tests.support.real_reactor import run

SCENARIO_S_MAX = 100.0
PROGRAM = Path(__file__).with_name("java") / "Partitions.java"

CLUSTERS = [name if name == KREPLICA else pytest.param(name, marks=pytest.mark.soak) for name in NAMES]


@pytest.fixture(scope="module", params=CLUSTERS)
def under_test(
    request: pytest.FixtureRequest,
    kafka_cluster_factory: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[UnderTest]:
    """Run each cluster in turn."""
    name: str = request.param
    try:
        with run_cluster(name, kafka_cluster_factory, tmp_path_factory.mktemp("matrix")) as cluster:
            yield cluster
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried on {name}: {missing}")


@pytest.mark.parametrize("scenario", matrix_scenarios.SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_scenario_has_the_expected_result(under_test: UnderTest, scenario: Scenario) -> None:
    from twisted.internet import reactor

    world = World(under_test, reactor)

    async def run_scenario() -> object:
        try:
            return await scenario.run(world)
        finally:
            await world.close()

    try:
        seen = run(run_scenario(), SCENARIO_S_MAX)
    finally:
        world.start_killed()
    assert seen == scenario.expected_on(under_test.name)


@pytest.mark.soak
@pytest.mark.parametrize("version", VERSIONS.values())
def test_the_java_client_selects_the_same_partitions(version: str) -> None:
    """Kafka's partitioner selects the partitions in ``JAVA_PARTITIONS``."""
    try:
        printed = apache_kafka.run_program(version, PROGRAM, JAVA_PARTITION_COUNT, *JAVA_PARTITIONS)
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not compared with Kafka's Java clients {version}: {missing}")
    assert [int(each) for each in printed.split()] == list(JAVA_PARTITIONS.values())


def test_the_page_matches_the_table() -> None:
    """If this test fails after a change of the table, run ``python tests/interop/matrix_page.py``."""
    assert PAGE.read_text() == text()
