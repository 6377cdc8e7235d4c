"""Experiments of the ZooKeeper benchmark, the published results next to them, and rows with errors."""

from __future__ import annotations

import pytest

from benchmarks.zookeeper import Sample, Scale, row
from benchmarks.zookeeper_experiments import AT_ONCE, Experiment, document_result, experiments


def test_batches_are_at_most_as_large_as_the_number_of_znodes() -> None:
    titles = [experiment.title for experiment in experiments(1_000)]
    assert titles[:5] == ["set-data-sync", "get-data-sync", "set-data-async", "get-data-async",
                          "multi-set-data-sync (10)"]  # fmt: skip
    assert titles[-1] == "multi-check-and-set-data-async (1,000)"
    assert "multi-set-data-sync (50,000)" in [experiment.title for experiment in experiments(50_000)]


def test_all_requests_at_once_are_separate_experiments() -> None:
    """Their window is twice the number of requests, because clients send half a window at a time."""
    at_once = [experiment for experiment in experiments(1_000, at_once=True) if experiment.title.endswith(AT_ONCE)]
    assert [experiment.window for experiment in at_once] == [2_000] * 4


@pytest.mark.parametrize(
    ("title", "znode_count", "result"),
    [
        ("set-data-sync", 500_000, 1_973),
        ("get-data-async", 500_000, 48_522),
        ("get-data-async, all at once", 1_000_000, "OutOfMemory"),
        ("multi-set-data-sync (10,000)", 1_000_000, 99_193),
        ("multi-set-data-sync (50,000)", 500_000, "ConnectionLoss"),
        ("multi-check-and-set-data-async (1)", 500_000, "OutOfMemory"),
        ("multi-check-and-set-data-async (5,000)", 10_000, 159_490),
        ("multi-check-and-set-data-async (5,000)", 1_000_000, None),
        ("another", 10_000, None),
    ],
)
def test_published_results_are_znodes_per_second(title: str, znode_count: int, result: int | str | None) -> None:
    assert document_result(title, znode_count) == result


def test_each_experiment_of_the_document_has_a_result() -> None:
    assert None not in [document_result(experiment.title, 500_000) for experiment in experiments(500_000, at_once=True)]


def test_a_client_that_failed_shows_its_error_and_is_not_compared() -> None:
    samples = {"kreplica": [Sample(0, 0, "RequestTooLarge")], "java": [Sample(10, 3.0)]}
    assert row(Experiment("multi-set-data-sync (50,000)", "multi", 1, 50_000), 9, samples, ["kreplica", "java", "raw"],
               500_000) == {
        "experiment": "multi-set-data-sync (50,000)",
        "znodes": 9,
        "kreplica /s": "RequestTooLarge",
        "java /s": 10,
        "raw /s": None,
        "design /s": "ConnectionLoss",
        "kreplica us": None,
        "java us": 3.0,
        "raw us": None,
        "of java": None,
        "of raw": None,
        "reached": None,
    }  # fmt: skip


def test_slow_clients_and_single_requests_use_fewer_znodes() -> None:
    scale = Scale(100_000, 1, target_parts={"kazoo": 10})
    one_by_one, multi = Experiment("set-data-sync", "set", 1), Experiment("multi", "multi", 1, 50_000)
    assert [scale.used(name, one_by_one) for name in ("java", "kazoo")] == [4_000, 400]
    assert [scale.used(name, multi) for name in ("java", "kazoo")] == [100_000, 50_000]
