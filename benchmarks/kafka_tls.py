"""The comparison with Apache Kafka over TLS, and the rate of new connections with TLS and SASL.

Both systems have the same certificates (P-256), librdkafka is the client, and brokers also connect to each other with
TLS.  Both run at the same time and receive the load in turn.  Values are medians; ``ratio`` is kreplica's value divided
by Kafka's.  New connections are opened by eight threads of one Python process, on the same two cores, and authenticate
with SASL PLAIN.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.comparison import deployments
from benchmarks.comparison.scenarios import Bound, Kind, Scenario
from benchmarks.kafka import OTHER, OWN, compare

RATIO = 1.2
"""Target ratio of throughput over TLS to Kafka's."""

_RATE = (Bound("MB/s", ratio_least=RATIO),)

SCENARIOS = (
    Scenario("TLS, produce 1 KB, acks=1, 16 K", Kind.PRODUCE, _RATE),
    Scenario("TLS, produce 1 KB, acks=1, 128 K", Kind.PRODUCE, _RATE, batch_bytes=131_072),
    Scenario("TLS, consume 1 KB", Kind.CONSUME, _RATE, batch_bytes=131_072),
    Scenario("TLS, end to end, 1,000/s, acks=1", Kind.LATENCY, (Bound("p99 ms", ratio_most=1 / RATIO),),
             record_bytes=100),
    Scenario("SASL_SSL, new connections", Kind.CONNECT, (Bound("connections/s", least=1000, ratio_least=RATIO),)),
    Scenario("TLS, RF 3, acks=all, 16 K", Kind.PRODUCE, _RATE, brokers=3, acks=-1),
    Scenario("TLS, RF 3, acks=all, 128 K", Kind.PRODUCE, _RATE, brokers=3, acks=-1, batch_bytes=131_072),
)  # fmt: skip

SYSTEMS = {
    OWN: partial(deployments.kreplica, encrypted=True),
    OTHER: partial(deployments.kafka, encrypted=True),
}


def run(scale: str = "quick", rounds: int | None = None) -> list[dict[str, Any]]:
    """Measure every scenario on both systems.

    :return: a row for each figure of each scenario.
    """
    return compare(SCENARIOS, scale, rounds, SYSTEMS)
