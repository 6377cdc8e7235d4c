"""The comparison with Apache Kafka 4 in KRaft mode: produce, consume, latency and steady rates, with several clients.

The scenarios are those of ``kafka`` and ``kafka_java`` without failovers and idle connections; Kafka's own programs are
those of version 3.9.  Each Kafka node is both a broker and a controller; kreplica's clusters use a real ZooKeeper,
whose costs are not counted.
"""

from __future__ import annotations

from typing import Any

from benchmarks.comparison import deployments
from benchmarks.comparison.kraft import kraft
from benchmarks.comparison.scenarios import SCENARIOS as LIBRDKAFKA
from benchmarks.comparison.scenarios import Kind
from benchmarks.kafka import OWN, compare
from benchmarks.kafka_java import SCENARIOS as JAVA
from tests.interop.apache_kafka import NEWEST_VERSION

KINDS = (Kind.PRODUCE, Kind.CONSUME, Kind.LATENCY, Kind.TINY)
SYSTEMS = {OWN: deployments.kreplica, f"Kafka {NEWEST_VERSION}": kraft}


def run(scale: str = "quick", rounds: int | None = None) -> list[dict[str, Any]]:
    """Measure every scenario on both systems.

    :return: a row for each figure of each scenario.
    """
    return compare((*(each for each in LIBRDKAFKA if each.kind in KINDS), *JAVA), scale, rounds, SYSTEMS)
