"""Whom a group waits for, and until when, as whoever asks why it does not get on is told."""

from __future__ import annotations

from classic_scene import ClassicScene, Story
from consumer_scene import Transcript

from kreplica.groups.diagnostics import PendingStep, pending_members, session_deadlines


def waits(group):
    return [(wait.step, wait.member_id.split("-")[0], round(wait.left_s)) for wait in pending_members(group)]


def classic(script, **config):
    config.setdefault("initial_rebalance_delay_ms", 0)
    scene = ClassicScene(**config)
    Story(scene).run(script)
    return scene


def test_a_group_that_gathers_waits_for_whoever_comes():
    """A group that was empty waits for more members than the one that has come."""
    scene = classic("> a joins version=0", initial_rebalance_delay_ms=3000)
    assert waits(scene.group) == [(PendingStep.COME, "", 3)]
    scene.advance(4)
    assert [what for what, _, _ in waits(scene.group)] == [PendingStep.SYNC]


def test_a_rebalance_waits_for_who_has_not_joined_anew():
    """The member that was told of a rebalance, and has not joined, is named; when it has, its assignment is awaited."""
    scene = classic("""
> a joins version=0
> wait 0
> a syncs a=everything
> commit
> b joins version=0
""")
    ((what, member, left_s),) = waits(scene.group)
    assert (what, member) == (PendingStep.JOIN, next(iter(scene.group.roster.members)).split("-")[0])
    assert 0 < left_s <= 60


def test_a_stable_group_waits_for_nobody():
    """Members of a group that is stable have only to be heard of."""
    scene = classic("""
> a joins version=0
> wait 0
> a syncs a=everything
> commit
> wait 2
""")
    assert pending_members(scene.group) == []
    (silence,) = session_deadlines(scene.group)
    assert silence.left_s == silence.session_s - 2


def consumers(*lines):
    transcript = Transcript()
    for line in lines:
        transcript.tell(line)
    return transcript.scene


def test_a_kip_848_group_waits_for_who_has_partitions_to_give_up():
    """Until a member has given up what another is to have that member is waited for, no longer than its time-out."""
    scene = consumers("a joins t timeout=30", "a holds on", "b joins t", "a beats", "wait 4")
    ((what, member, left_s),) = waits(scene.group)
    assert (what, member) == (PendingStep.REVOKE, "a")
    assert left_s == 26
    lefts = {each.member_id: each.session_s - each.left_s for each in session_deadlines(scene.group)}
    assert set(lefts) == {"a", "b"}
    assert lefts["a"] == 4


def test_a_kip_848_group_that_is_stable_waits_for_nobody():
    """When everybody has what it is to have nobody is waited for."""
    scene = consumers("a joins t")
    assert pending_members(scene.group) == []
