"""A whole broker on virtual time: its clients, its coordinator, its crashes, from one seed."""

from __future__ import annotations

from hashlib import sha256

import pytest
from cluster_scene import Scene
from twisted.internet.defer import Deferred

CRASHES = 20


def load(scene: Scene) -> None:
    Deferred.fromCoroutine(scene.write_for_ever())


def check(scene: Scene) -> None:
    """All that was acknowledged is there, at the offset that was told; nothing is there twice; offsets have no hole."""
    assert not scene.told_twice, "one offset was told for two records"
    records = scene.simulation.run_until(scene.read_all(), timeout_s=120)
    assert [record.offset for record in records] == list(range(len(records)))
    values = [record.value for record in records]
    assert len(set(values)) == len(values)
    lost = {offset for offset, value in scene.acknowledged.items() if values[offset : offset + 1] != [value]}
    assert not lost, f"{len(lost)} of {len(scene.acknowledged)} acknowledged records are lost: {sorted(lost)[:5]}"


@pytest.mark.parametrize("seed", [1, 2])
def test_kill_loses_nothing_acknowledged(seed: int) -> None:
    """A broker killed twenty times during a load serves everything it had acknowledged, once and in order."""
    scene = Scene(seed, {})
    load(scene)
    for _ in range(CRASHES):
        scene.simulation.run(scene.random.uniform(0.01, 0.2))
        scene.broker_host.kill()
        scene.start_broker()
    scene.simulation.run(1)
    assert len(scene.acknowledged) > 500
    check(scene)


@pytest.mark.parametrize("seed", [1, 2])
def test_power_loss_loses_nothing_that_was_synced(seed: int) -> None:
    """With flush.messages=1 the same holds for a machine that loses power, and its coordinator's with it at times."""
    scene = Scene(seed, {"flush.messages": "1"})
    load(scene)
    for number in range(CRASHES):
        scene.simulation.run(scene.random.uniform(0.01, 0.2))
        scene.broker_host.power_loss()
        if number % 4 == 3:
            scene.coordinator_host.power_loss()
            scene.start_coordinator()
        scene.start_broker()
    scene.simulation.run(1)
    assert len(scene.acknowledged) > 200
    check(scene)


def test_a_broker_s_run_is_its_seed() -> None:
    """Broker, coordinator and client take the same course for the same seed, event by event."""

    def course(seed: int) -> str:
        digest = sha256()
        scene = Scene(seed, {}, lambda line: digest.update(line.encode()))
        load(scene)
        scene.simulation.run(0.5)
        scene.broker_host.kill()
        scene.start_broker()
        scene.simulation.run(0.5)
        return digest.hexdigest()

    assert course(1) == course(1)
    assert course(1) != course(2)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_many_courses(seed: int) -> None:
    """What holds for a few seeds holds for hundreds."""
    test_kill_loses_nothing_acknowledged(seed)
    test_power_loss_loses_nothing_that_was_synced(seed)
