"""Loops of the controller over all partitions yield to the reactor."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from kreplica.cluster import znodes
from kreplica.controller import term
from kreplica.runtime import Reactor, time_slice
from kreplica.runtime.pause import pause
from tests.support.controller_scene import ControllerScene

PARTITIONS = 40
LOOPS_OF_A_TAKEOVER = 8
"""Number of loops over all partitions during a takeover that changes nothing."""


def test_a_takeover_yields_in_every_loop_over_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """With slices of one partition, each of these loops yields once per partition."""
    monkeypatch.setattr(term, "SLICE", 1)
    monkeypatch.setattr(time_slice, "SLICE_SECONDS_MAX", -1.0)
    yields: list[float] = []

    def counted(reactor: Reactor, seconds: float) -> Deferred[None]:
        yields.append(seconds)
        return pause(reactor, seconds)

    monkeypatch.setattr(time_slice, "pause", counted)
    scene = ControllerScene(brokers=3)
    scene.start()
    scene.make_topic("orders", dict.fromkeys(range(PARTITIONS), (1, 2, 3)))
    scene.settle()
    yields.clear()
    scene.run(scene.zookeeper.delete(znodes.CONTROLLER))
    scene.settle()
    assert len(yields) >= LOOPS_OF_A_TAKEOVER * PARTITIONS
