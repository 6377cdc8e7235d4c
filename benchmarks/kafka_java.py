"""The comparison with Apache Kafka, with Kafka's own programs as clients, and latency at steady rates.

The programs are `ProducerPerformance`, `ConsumerPerformance` and `EndToEndLatency` of Kafka 3.9.  In the steady
scenarios, librdkafka sends records of 1 KB at 10, 50 and 80 % of the highest rate that the slower system sustains.
As in ``kafka``, both systems run at the same time and receive the load in turn.  Values are medians; ``ratio`` is
kreplica's value divided by Kafka's.  Context switches are those of the brokers' threads.
"""

from __future__ import annotations

from typing import Any

from benchmarks.comparison.scenarios import Bound, Kind, Scenario
from benchmarks.kafka import compare

LARGE = 131_072


def _rate(ratio: float, cpu_ratio: float) -> tuple[Bound, ...]:
    return Bound("MB/s", ratio_least=ratio), Bound("broker us/MB", ratio_most=cpu_ratio)


_AVERAGE = (Bound("average ms", ratio_most=1.0),)

PROGRAMS = (
    Scenario("Java, produce 1 KB, acks=1, 16 K", Kind.JAVA_PRODUCE, _rate(1.4, 0.45), share=2),
    Scenario("Java, produce 1 KB, acks=1, 128 K", Kind.JAVA_PRODUCE, _rate(1.1, 0.55), batch_bytes=LARGE,
             share=2),
    Scenario("Java, produce 100 B, acks=1, 16 K", Kind.JAVA_PRODUCE, _rate(1.3, 0.45), record_bytes=100, share=0.5),
    Scenario("Java, consume 1 KB", Kind.JAVA_CONSUME, _rate(1.2, 0.45), batch_bytes=LARGE, share=2),
    Scenario("Java, end to end", Kind.JAVA_END_TO_END, _AVERAGE, record_bytes=100),
    Scenario("memory after these", Kind.MEMORY, (Bound("MB", ratio_most=0.3),)),
    Scenario("Java, RF 3, acks=all, 1 KB, 16 K", Kind.JAVA_PRODUCE, _rate(1.4, 0.5), brokers=3, acks=-1),
    Scenario("Java, RF 3, acks=all, 1 KB, 128 K", Kind.JAVA_PRODUCE, _rate(1.1, 0.5), brokers=3, acks=-1,
             batch_bytes=LARGE),
    Scenario("Java, RF 3, acks=all, end to end", Kind.JAVA_END_TO_END, _AVERAGE, brokers=3, acks=-1, record_bytes=100),
    Scenario("RF 3, memory after these", Kind.MEMORY, (Bound("MB", ratio_most=0.3),), brokers=3),
)  # fmt: skip

STEADY = tuple(
    Scenario(
        f"{name}, {percent} % of the maximum",
        Kind.STEADY,
        (Bound("p50 ms", ratio_most=1.0), Bound("p99 ms", ratio_most=0.5)),
        brokers=brokers,
        acks=acks,
        load_percent=percent,
        linger_ms=1,
        batch_bytes=LARGE,
    )
    for name, brokers, acks in (("steady, acks=1", 1, 1), ("steady, RF 3, acks=all", 3, -1))
    for percent in (10, 50, 80)
)

SCENARIOS = (*PROGRAMS, *STEADY)


def run(scale: str = "quick", rounds: int | None = None) -> list[dict[str, Any]]:
    """Measure every scenario on both systems.

    :return: a row for each figure of each scenario.
    """
    return compare(SCENARIOS, scale, rounds)
