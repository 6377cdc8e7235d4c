"""Storms with an ensemble of ZooKeeper servers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from kreplica.testing.ensemble.ensemble import EnsembleOptions
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.faults import ENSEMBLE_FAULTS
from kreplica.testing.storms.options import options_of
from kreplica.testing.storms.outcome import run_storm
from kreplica.testing.storms.replicated_run import ReplicatedRun
from kreplica.testing.storms.storm import faults_of_seed

ENSEMBLE = {"ensemble": "3", "seconds": "10", "applications": "no"}


@pytest.fixture(autouse=True)
def _deferred_collection() -> Iterator[None]:
    with deferred_collection():
        yield


def test_faults_of_the_ensemble_are_added_to_other_faults() -> None:
    without = faults_of_seed(3, options_of(3, {**ENSEMBLE, "ensemble": "1"}))
    with_them = faults_of_seed(3, options_of(3, ENSEMBLE))
    assert with_them[: len(without)] == without
    added = with_them[len(without) :]
    assert {fault.name for fault in added} <= set(ENSEMBLE_FAULTS)
    assert [fault.number for fault in with_them] == list(range(1, len(with_them) + 1))


def test_a_storm_is_reproducible() -> None:
    """A storm with elections and lagging servers depends only on its seed."""
    traces: list[list[str]] = [[], []]
    for trace in traces:
        outcome = run_storm(5, options_of(5, ENSEMBLE), trace=trace.append)
        assert outcome.clean, outcome.failure
    assert traces[0] == traces[1]
    assert any("coordinator-log" in line for line in traces[0])


@pytest.mark.parametrize("name", ENSEMBLE_FAULTS)
def test_a_cluster_recovers(name: str) -> None:
    """Each fault of the ensemble has an effect, and records are acknowledged after it."""
    run = ReplicatedRun(1, ensemble=EnsembleOptions())
    for number in range(2):
        end = ENSEMBLE_FAULTS[name][0](run, Random(number))
        run.cluster.run(6.0)
        if end is not None:
            end()
        run.cluster.run(1.0)
    assert len(run.timeline) >= 2
    run.run_until_acknowledged(20)
    run.converge()
