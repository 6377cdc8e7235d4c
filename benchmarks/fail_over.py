"""kreplica beside Apache Kafka 3.9 when a broker goes: shut down, killed, killed while it is the controller.

The last scenarios of ``kafka`` alone: the same rows without what comes before them.
"""

from __future__ import annotations

from typing import Any

from benchmarks.comparison.scenarios import FAIL_OVERS, SCENARIOS
from benchmarks.kafka import compare


def run(scale: str = "quick", rounds: int | None = None) -> list[dict[str, Any]]:
    """Measure them on both.

    :return: a row for each figure of each scenario.
    """
    return compare([each for each in SCENARIOS if each.kind in FAIL_OVERS], scale, rounds)
