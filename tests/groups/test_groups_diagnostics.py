"""Diagnostics: members that a group waits for, and their deadlines."""

from __future__ import annotations

from classic_scene import ClassicScene, Story
from consumer_scene import Transcript

from kreplica.groups.diagnostics import PendingStep, pending_members, session_deadlines


def list_pending(group):
    return [(wait.step, wait.member_id.split("-")[0], round(wait.remaining_s)) for wait in pending_members(group)]


def classic_scene(script, **config):
    config.setdefault("initial_rebalance_delay_ms", 0)
    scene = ClassicScene(**config)
    Story(scene).run(script)
    return scene


def test_initial_rebalance_waits_for_any_member():
    scene = classic_scene("> a joins version=0", initial_rebalance_delay_ms=3000)
    assert list_pending(scene.group) == [(PendingStep.FIRST_JOIN, "", 3)]
    scene.advance(4)
    assert [step for step, _, _ in list_pending(scene.group)] == [PendingStep.SYNC]


def test_rebalance_waits_for_missing_members():
    """A rebalance waits for members that have not rejoined."""
    scene = classic_scene("""
> a joins version=0
> wait 0
> a syncs a=everything
> commit
> b joins version=0
""")
    ((step, member, remaining_s),) = list_pending(scene.group)
    assert (step, member) == (PendingStep.JOIN, next(iter(scene.group.roster.members)).split("-")[0])
    assert 0 < remaining_s <= 60


def test_stable_group_waits_for_no_member():
    """A stable group has only session deadlines."""
    scene = classic_scene("""
> a joins version=0
> wait 0
> a syncs a=everything
> commit
> wait 2
""")
    assert pending_members(scene.group) == []
    (deadline,) = session_deadlines(scene.group)
    assert deadline.remaining_s == deadline.session_s - 2


def consumer_scene(*lines):
    transcript = Transcript()
    for line in lines:
        transcript.execute(line)
    return transcript.scene


def test_consumer_group_waits_for_revocations():
    """A member with pending revocations is listed with its timeout."""
    scene = consumer_scene("a joins t timeout=30", "a stops revoking", "b joins t", "a beats", "wait 4")
    ((step, member, remaining_s),) = list_pending(scene.group)
    assert (step, member) == (PendingStep.REVOKE, "a")
    assert remaining_s == 26
    elapsed = {each.member_id: each.session_s - each.remaining_s for each in session_deadlines(scene.group)}
    assert set(elapsed) == {"a", "b"}
    assert elapsed["a"] == 4


def test_stable_consumer_group_waits_for_no_member():
    scene = consumer_scene("a joins t")
    assert pending_members(scene.group) == []
