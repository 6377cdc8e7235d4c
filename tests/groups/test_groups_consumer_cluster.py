"""KIP-848 groups on three brokers: no partition has two owners when members and coordinators die."""

from __future__ import annotations

import pytest
from consumer_members_scene import consumer_members

SENT, ANSWERED = "ConsumerGroupHeartbeat is sent", "ConsumerGroupHeartbeat is answered"


def test_members_join_leave_and_die() -> None:
    """After a member joins, leaves or dies, the partitions are shared evenly."""
    with consumer_members() as scene:
        scene.join()
        scene.settle()
        scene.readers.pop(0).leave()
        scene.settle()
        scene.readers.pop(0).die()
        scene.settle()


@pytest.mark.parametrize(
    ("step", "count", "delay_s"),
    [(SENT, 1, 0.0), (SENT, 2, 0.001), (SENT, 4, 0.003), (ANSWERED, 1, 0.0), (ANSWERED, 5, 0.0)],
)
def test_coordinator_dies_while_a_member_joins(step: str, count: int, delay_s: float) -> None:
    """Members continue at the next coordinator, and the joining member gets its share."""
    with consumer_members(seed=count) as scene:
        was_killed = scene.after_step(step, scene.kill_coordinator, count=count, delay_s=delay_s)
        scene.join()
        scene.settle()
        assert was_killed()
        scene.restart()
        scene.settle()


def test_coordinator_loses_power_while_a_member_dies() -> None:
    """The next coordinator detects a dead member that never contacted it."""
    with consumer_members(3) as scene:
        scene.readers.pop(0).die()
        scene.power_off_coordinator()
        scene.settle()
        scene.restart()
        scene.settle()


def test_coordinators_die_one_after_the_other() -> None:
    """Epochs never decrease, and no member is fenced."""
    with consumer_members() as scene:
        for _ in range(3):
            scene.kill_coordinator()
            scene.settle()
            scene.restart()
        assert [reader.member.fenced_count for reader in scene.readers] == [0, 0]
