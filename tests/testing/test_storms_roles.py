"""Faults that change roles: each has its effect, and the cluster recovers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.simulator.network import EXTRA_DELAY_S_MAX
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.faults import FAULTS
from kreplica.testing.storms.replicated_run import ReplicatedRun


@pytest.fixture(autouse=True)
def _deferred_collection() -> Iterator[None]:
    with deferred_collection():
        yield


def test_late_segments_are_late_by_seconds() -> None:
    """A lost segment is retransmitted after a second or more, without delaying the other direction."""
    cluster = SimulatedCluster(1)
    cluster.start()
    client = cluster.client()
    cluster.run_until(client.metadata())
    cluster.simulation.network.link("client-1", "broker-1").late_chance = 1.0
    started_s = cluster.simulation.now_s
    cluster.run_until(client.metadata())
    assert 1.0 <= cluster.simulation.now_s - started_s <= EXTRA_DELAY_S_MAX + 0.1
    cluster.stop()


def test_a_deposed_controller() -> None:
    """Another controller is elected before the old one learns of it; in the end only one remains."""
    run = ReplicatedRun(1)
    old = run.cluster.controller()
    assert old is not None
    end = FAULTS["depose controller"][0](run, Random(3))
    run.cluster.run_until(lambda: run.cluster.controller() != old)
    assert run.machine(old).program.controller.active
    assert end is not None
    end()
    run.converge()
    assert run.network.link("coordinator", f"broker-{old}").latency_s == run.network.latency_s


def test_a_controller_that_is_asked_to_resign() -> None:
    """A controller resigns on request, so that there are never two, and another broker is elected."""
    run = ReplicatedRun(1)
    old = run.cluster.controller()
    assert old is not None
    end = FAULTS["depose controller"][0](run, Random(1))
    assert "asked to resign" in str(run.timeline[-1])
    run.cluster.run_until(lambda: run.cluster.controller() not in (old, None))
    assert not run.machine(old).program.controller.active
    assert end is not None
    end()
    run.converge()


@pytest.mark.parametrize("name", ["move leaders", "pause at election", "late segments", "kill one by one"])
def test_a_cluster_recovers(name: str) -> None:
    """A cluster recovers from each of these faults three times in a row, without losses."""
    run = ReplicatedRun(1)
    for number in range(3):
        end = FAULTS[name][0](run, Random(number))
        run.cluster.run(2.0)
        if end is not None:
            end()
        run.settle()
    assert len(run.timeline) >= 3
    run.converge()
