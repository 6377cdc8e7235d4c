"""Real Spark: one session for all tests of this directory, which run in one process (tests/conftest.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kreplica.spark.session import spark_session
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stopTimeout": "20s",
}


TIMEOUT_S = 900
"""Time limit of each test; on a busy machine, Spark's processes start slowly."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the time limit of the tests in this directory; each conftest receives the tests of all directories."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session, with two cores."""
    warehouse: Path = tmp_path_factory.mktemp("spark")
    settings = {**SETTINGS, "spark.sql.warehouse.dir": str(warehouse), "spark.local.dir": str(warehouse)}
    session = spark_session("kreplica-tests", master="local[2]", settings=settings)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def brokers() -> Iterator[KafkaCluster]:
    """Three brokers for the whole session; tests that inject faults create their own cluster."""
    settings = {"transaction.two.phase.commit.enable": True}
    with KafkaCluster(3, settings=settings, session_timeout_ms=5000) as cluster:
        yield cluster
