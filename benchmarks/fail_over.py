"""kreplica and Apache Kafka 3.9 after a broker was shut down, killed, or killed while it was the controller.

Only the last scenarios of ``kafka`` are run, with the same rows.
"""

from __future__ import annotations

from typing import Any

from benchmarks.comparison.scenarios import FAIL_OVERS, SCENARIOS
from benchmarks.kafka import compare


def run(scale: str = "quick", rounds: int | None = None) -> list[dict[str, Any]]:
    """Measure the scenarios on both systems.

    :return: a row for each figure of each scenario.
    """
    return compare([each for each in SCENARIOS if each.kind in FAIL_OVERS], scale, rounds)
