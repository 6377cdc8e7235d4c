"""Offset commits per second on one broker, from many groups whose members each have requests in flight.

The load is a separate process, whose CPU time is reported separately.  The main result is the broker's CPU time per
commit, which other load on the machine affects less than the rate: ``per core`` is the rate of one core that follows
from it.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from benchmarks.broker_process import BrokerProcess
from benchmarks.driver import Driver, Measurement, measure
from benchmarks.raw_client import RawClient

OVERRIDES = {"num.partitions": "10", "group.initial.rebalance.delay.ms": "0"}
MEMBERS, WINDOW = 20, 16
REPETITIONS = {"quick": 3, "full": 7}
REQUESTS = {1: 40_000, 10: 10_000}
"""Number of requests in one run, by partitions per request."""

TARGET_PER_S = 20_000


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Start a broker and let groups commit one partition per request, and ten."""
    driver = Driver((sys.executable, "-m", "benchmarks.commit_load"), None)
    samples: dict[int, list[Measurement]] = {partitions: [] for partitions in REQUESTS}
    with BrokerProcess(OVERRIDES) as broker:
        broker.wait_until_ready()
        client = RawClient(broker.port)
        client.request_topic(b"commits")
        client.close()
        for _ in range(REPETITIONS[scale]):
            for partitions, measurements in samples.items():
                count = REQUESTS[partitions] // MEMBERS
                measurements.append(measure(driver, broker, "commit", MEMBERS, WINDOW, count, partitions))
    return [_row(partitions, measurements) for partitions, measurements in samples.items()]


def _row(partitions: int, samples: list[Measurement]) -> dict[str, Any]:
    commits = samples[0].load["requests"] * partitions
    rates = [commits / each.load["seconds"] for each in samples]
    cost_us = statistics.median(each.broker_cpu_s * 1e6 / commits for each in samples)
    per_core = 1e6 / cost_us
    return {
        "partitions per request": partitions,
        "members x in flight": f"{MEMBERS} x {WINDOW}",
        "commits/s": statistics.median(rates),
        "lowest to highest": f"{min(rates):,.0f} to {max(rates):,.0f}",
        "broker us/commit": cost_us,
        "load us/commit": statistics.median(each.load["client_cpu_s"] * 1e6 / commits for each in samples),
        "per core": per_core,
        "target": f">= {TARGET_PER_S:,} commits/s per core",
        "": "pass" if per_core >= TARGET_PER_S else "missed",
    }
