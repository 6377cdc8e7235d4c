"""A classic group in a cluster of three brokers whose coordinator dies at each step of its members."""

from __future__ import annotations

import pytest
from members_scene import CONVERGENCE_S_MAX, MembersScene, members

DELAYS_S = (0.0, 0.0006, 0.002)
"""Delays after a step. A message takes up to 1 ms, so requests, writes or responses are in flight."""

REMOVAL_S = 15.0
"""Time within which a dead member is removed: its session timeout and a rebalance."""


def kill_and_recover(scene: MembersScene, step: str, count: int, delay_s: float, *, loses_power: bool = False) -> None:
    """Kill the coordinator at a step, wait until the group recovers, and restart the broker."""
    was_called = scene.after_step(
        step, scene.power_off_coordinator if loses_power else scene.kill_coordinator, count=count, delay_s=delay_s
    )
    scene.cluster.run_until(was_called, CONVERGENCE_S_MAX)
    scene.converge()
    scene.restart()
    scene.converge()


JOINING = [
    ("JoinGroup is sent", 1),
    ("JoinGroup is answered", 1),
    ("JoinGroup is sent", 2),
    ("JoinGroup is sent", 4),
    ("JoinGroup is answered", 4),
    ("SyncGroup is sent", 1),
    ("SyncGroup is sent", 3),
    ("SyncGroup is answered", 1),
    ("SyncGroup is answered", 3),
    ("OffsetFetch is sent", 1),
]
"""Steps while a third member joins: it sends JoinGroup twice (first to get its ID), then the other two rejoin."""


@pytest.mark.parametrize(("step", "count"), JOINING)
def test_coordinator_dies_while_a_member_joins(step: str, count: int) -> None:
    """Members soon share the partitions again, and no committed offset is lost."""
    with members(2) as scene:
        for index, delay_s in enumerate(DELAYS_S):
            newcomer = scene.add()
            kill_and_recover(scene, step, count, delay_s, loses_power=bool(index % 2))
            scene.remove(newcomer).leave()
            scene.converge()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 32))
def test_coordinator_dies_repeatedly(seed: int) -> None:
    """The group recovers from kills and power losses of the coordinator, with other network delays."""
    with members(2, seed=seed) as scene:
        for step, count in JOINING:
            for index, delay_s in enumerate((*DELAYS_S, 0.0003, 0.001, 0.005)):
                newcomer = scene.add()
                kill_and_recover(scene, step, count, delay_s, loses_power=bool((seed + index) % 2))
                scene.remove(newcomer).leave()
                scene.converge()


LEAVING = [("LeaveGroup is sent", 1), ("LeaveGroup is answered", 1), ("JoinGroup is sent", 1), ("SyncGroup is sent", 1)]


@pytest.mark.parametrize(("step", "count"), LEAVING)
def test_coordinator_dies_while_a_member_leaves(step: str, count: int) -> None:
    """If the coordinator dies while a member leaves, the member is removed, at the latest after its session timeout."""
    with members(2) as scene:
        for delay_s in DELAYS_S:
            leaver = scene.add()
            scene.converge()
            scene.remove(leaver).leave()
            kill_and_recover(scene, step, count, delay_s)


@pytest.mark.parametrize("step", ["OffsetCommit is sent", "OffsetCommit is answered", "Heartbeat is sent"])
def test_coordinator_dies_in_a_stable_group(step: str) -> None:
    """Members continue in the same or the next generation, with their committed offsets."""
    with members(3) as scene:
        for delay_s in DELAYS_S:
            kill_and_recover(scene, step, 1, delay_s)


@pytest.mark.parametrize(
    "step", ["JoinGroup is sent", "JoinGroup is answered", "SyncGroup is sent", "SyncGroup is answered"]
)
def test_member_dies(step: str) -> None:
    """When a member dies, the others share its partitions, at the latest after its session timeout."""
    with members(2) as scene:
        for delay_s in DELAYS_S:
            newcomer = scene.add()
            was_called = scene.after_step(step, scene.remove(newcomer).die, delay_s=delay_s)
            scene.cluster.run_until(was_called)
            scene.cluster.run(REMOVAL_S)
            scene.converge()


def test_controlled_shutdown_of_the_coordinator() -> None:
    """After a controlled shutdown of the coordinator, members continue in their generation."""
    with members(3) as scene:
        before = scene.generation
        scene.cluster.run_until(scene.cluster.brokers[scene.coordinator].stop())
        scene.converge()
        assert scene.generation == before
        scene.restart()
        scene.converge()


@pytest.mark.parametrize("commits", [True, False])
def test_isolated_coordinator(commits: bool) -> None:
    """Members of an isolated coordinator find the next one."""
    with members(3, commits=commits) as scene:
        old = scene.coordinator
        network = scene.cluster.simulation.network
        for other in ("coordinator", *(f"broker-{number}" for number in scene.cluster.brokers if number != old)):
            network.cut(f"broker-{old}", other)
        scene.cluster.run_until(lambda: scene.coordinator not in (old, -1), CONVERGENCE_S_MAX)
        scene.converge()
        scene.add()
        scene.converge()
        network.heal()
        scene.cluster.run(30)
        scene.restart()
        scene.converge()
