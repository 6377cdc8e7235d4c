"""Time to rebalance a group of two hundred members on one broker.

``first``: all members join an empty group at once; the configured delay is not counted.  ``one more``, ``one less``:
the other members learn of the change from their heartbeats every ``session / 3``, so a rebalance cannot take less
time.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from benchmarks.broker_process import BrokerProcess
from benchmarks.driver import Driver, Measurement, measure

DELAY_MS = 500
OVERRIDES = {
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": str(DELAY_MS),
    "offsets.topic.num.partitions": "1",
}
MEMBERS = 200
SESSION_MS = 6000
REPETITIONS = {"quick": 3, "full": 7}
TARGET_S = 3.0


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Start a broker, and let a group form, grow and shrink."""
    driver = Driver((sys.executable, "-m", "benchmarks.rebalance_load"), None)
    with BrokerProcess(OVERRIDES) as broker:
        broker.wait_until_ready()
        samples = [measure(driver, broker, "rebalance", MEMBERS, SESSION_MS) for _ in range(REPETITIONS[scale])]
    return [_row(samples, what, name, delay_s) for what, name, delay_s in (
        ("first", "first_s", DELAY_MS / 1000),
        ("one more", "joined_s", 0.0),
        ("one less", "left_s", 0.0),
    )]  # fmt: skip


def _row(samples: list[Measurement], what: str, name: str, delay_s: float) -> dict[str, Any]:
    seconds = [each.load[name] - delay_s for each in samples]
    return {
        "members": MEMBERS,
        "rebalance": what,
        "configured delay s": delay_s,
        "settled after s": statistics.median(seconds),
        "lowest to highest": f"{min(seconds):.2f} to {max(seconds):.2f}",
        "broker CPU s, of all three": statistics.median(each.broker_cpu_s for each in samples),
        "load CPU s, of all three": statistics.median(each.load["client_cpu_s"] for each in samples),
        "target": f"<= {TARGET_S:g} s beyond the delay",
        "": "pass" if statistics.median(seconds) <= TARGET_S else "missed",
    }
