"""Aggregation of the measurements of the controller and ZooKeeper client benchmarks."""

from __future__ import annotations

from typing import Any

from benchmarks.controller import medians
from benchmarks.zookeeper import Sample, row
from benchmarks.zookeeper_experiments import Experiment


def _row_of(event: str, taken_ms: int, target_ms: int | None) -> dict[str, Any]:
    return {"event": event, "applied, ms": taken_ms, "target, ms": target_ms}


def test_a_row_is_the_median_over_all_rounds() -> None:
    """Each event has its own row, and only the median decides whether a target is reached."""
    rounds = [
        [_row_of("a broker dies", taken_ms, 1_000), _row_of("the broker returns", taken_ms * 10, None)]
        for taken_ms in (900, 1_500, 999)
    ]
    assert medians(rounds) == [
        {**_row_of("a broker dies", 999, 1_000), "target reached": True},
        {**_row_of("the broker returns", 9_990, None), "target reached": None},
    ]
    assert [row["target reached"] for row in medians(rounds[:2])] == [False, None]


def test_rates_and_costs_of_a_client_are_medians_relative_to_the_raw_socket() -> None:
    """The target is four fifths of the raw socket's rate."""
    samples = {
        "kreplica": [Sample(790.0, 3.0), Sample(900.0, 1.0), Sample(10.0, 2.0)],
        "raw": [Sample(1_000.0, 0.5), Sample(1_000.0, 0.25), Sample(4_000.0, 0.7)],
    }
    assert row(Experiment("sets", "set", window=1), 20, samples) == {
        "experiment": "sets",
        "znodes": 20,
        "kreplica /s": 790,
        "raw /s": 1_000,
        "design /s": None,
        "kreplica us": 2.0,
        "raw us": 0.5,
        "of raw": 0.79,
        "reached": False,
    }
