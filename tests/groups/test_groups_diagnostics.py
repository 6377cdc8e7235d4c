"""Diagnostics: members that a group waits for, and their deadlines."""

from __future__ import annotations

from classic_scene import ClassicScene, Story
from consumer_scene import Transcript

from kreplica.groups.diagnostics import PendingStep, pending_members, session_deadlines


def pending(group):
    return [(wait.step, wait.member_id.split("-")[0], round(wait.remaining_s)) for wait in pending_members(group)]


def classic(script, **config):
    config.setdefault("initial_rebalance_delay_ms", 0)
    scene = ClassicScene(**config)
    Story(scene).run(script)
    return scene


def test_initial_rebalance_waits_for_any_member():
    scene = classic("> a joins version=0", initial_rebalance_delay_ms=3000)
    assert pending(scene.group) == [(PendingStep.FIRST_JOIN, "", 3)]
    scene.advance(4)
    assert [what for what, _, _ in pending(scene.group)] == [PendingStep.SYNC]


def test_rebalance_waits_for_missing_members():
    """Members without JoinGroup, then members without SyncGroup."""
    scene = classic("""
> a joins version=0
> wait 0
> a syncs a=everything
> commit
> b joins version=0
""")
    ((what, member, remaining_s),) = pending(scene.group)
    assert (what, member) == (PendingStep.JOIN, next(iter(scene.group.roster.members)).split("-")[0])
    assert 0 < remaining_s <= 60


def test_stable_group_waits_for_no_member():
    """The group only has session deadlines."""
    scene = classic("""
> a joins version=0
> wait 0
> a syncs a=everything
> commit
> wait 2
""")
    assert pending_members(scene.group) == []
    (silence,) = session_deadlines(scene.group)
    assert silence.remaining_s == silence.session_s - 2


def consumers(*lines):
    transcript = Transcript()
    for line in lines:
        transcript.execute(line)
    return transcript.scene


def test_consumer_group_waits_for_revocations():
    """A member with pending revocations is listed with its timeout."""
    scene = consumers("a joins t timeout=30", "a holds on", "b joins t", "a beats", "wait 4")
    ((what, member, remaining_s),) = pending(scene.group)
    assert (what, member) == (PendingStep.REVOKE, "a")
    assert remaining_s == 26
    silences = {each.member_id: each.session_s - each.remaining_s for each in session_deadlines(scene.group)}
    assert set(silences) == {"a", "b"}
    assert silences["a"] == 4


def test_stable_consumer_group_waits_for_no_member():
    scene = consumers("a joins t")
    assert pending_members(scene.group) == []
