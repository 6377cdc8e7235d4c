"""Members of classic groups die at each step, and coordinators die between any two steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from classic_scene import GROUP, ClassicScene, Story, check_transcript

from kreplica.errors import KafkaError

# --- members ---------------------------------------------------------------------------------------------------------


def test_member_dies_before_it_joins() -> None:
    """A client that never uses its member ID is forgotten after its session timeout, and so is the empty group."""
    check_transcript("""
> a joins
  a: MEMBER_ID_REQUIRED
> wait 9.9
> show
  Empty 0: none
> wait 0.1
> show
  no group
""")


def test_member_dies_during_its_first_rebalance() -> None:
    """A client that dies during its first rebalance gets an assignment and is removed after its session timeout."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> a joins
> dead joins version=0
> wait 5
> b joins
  a: joined 2 with range, leads a b dead
  b: joined 2 with range, follows a
  dead: joined 2 with range, follows a
> a syncs a=0 b=1 dead=2
  log: 2: a=0 b=1 dead=2
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> wait 9
> a beats
  a: NONE
> b beats
  b: NONE
> wait 1
> a beats
  a: REBALANCE_IN_PROGRESS
> b beats
  b: REBALANCE_IN_PROGRESS
> a joins
> b joins
  a: joined 3 with range, leads a b
  b: joined 3 with range, follows a
""")


def test_member_dies_while_others_join() -> None:
    """A member that dies while the others join is removed after its session timeout."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> c joins version=0
> a joins
> wait 9.9
> show
  PreparingRebalance 1: a b c, led by a
> wait 0.1
  a: joined 2 with range, leads a c
  c: joined 2 with range, follows a
""")


def test_member_that_does_not_rejoin_is_removed() -> None:
    """A member that sends heartbeats but does not join is removed after the rebalance timeout."""
    check_transcript("""
> a joins version=0 rebalance=15000
> b joins version=0 rebalance=15000
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> a joins
> wait 8
> b beats
  b: REBALANCE_IN_PROGRESS
> wait 6.9
> b beats
  b: REBALANCE_IN_PROGRESS
> wait 0.1
  a: joined 2 with range, leads a
> b beats
  b: UNKNOWN_MEMBER_ID
""")


def test_new_member_waits_at_most_five_minutes() -> None:
    """A new member whose rebalance does not complete is removed after five minutes."""
    check_transcript("""
> a joins version=0 rebalance=400000 session=400000
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: assigned '0'
> b joins version=0
> wait 299
> show
  PreparingRebalance 1: a b, led by a
> wait 1
  b: UNKNOWN_MEMBER_ID
> show
  PreparingRebalance 1: a, led by a
""")


def test_follower_dies_after_joining() -> None:
    """A follower that dies before SyncGroup is removed after its session timeout."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> commit
  a: assigned '0'
> wait 9
> a beats
  a: NONE
> wait 1
> a beats
  a: REBALANCE_IN_PROGRESS
> show
  PreparingRebalance 1: a, led by a
""")


def test_leader_dies_after_joining() -> None:
    """If the leader dies before it sends the assignment, the others rejoin and one of them becomes leader."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> b syncs
> wait 10
  b: REBALANCE_IN_PROGRESS
> show
  PreparingRebalance 1: b, led by b
> b joins
  b: joined 2 with range, leads b
""")


def test_member_that_does_not_sync_is_removed() -> None:
    """A member that sends heartbeats but no SyncGroup request is removed after the rebalance timeout."""
    check_transcript("""
> a joins version=0 rebalance=12000
> b joins version=0 rebalance=12000
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> commit
  a: assigned '0'
> wait 6
> a beats
  a: NONE
> b beats
  b: NONE
> wait 5.9
> a beats
  a: NONE
> b beats
  b: NONE
> wait 0.1
> a beats
  a: REBALANCE_IN_PROGRESS
> b beats
  b: UNKNOWN_MEMBER_ID
""")


def test_leader_that_does_not_sync_is_removed() -> None:
    """A leader that sends heartbeats but no assignment is removed after the rebalance timeout; the others rejoin."""
    check_transcript("""
> a joins version=0 rebalance=12000
> b joins version=0 rebalance=12000
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> b syncs
> wait 6
> a beats
  a: NONE
> wait 6
  b: REBALANCE_IN_PROGRESS
> a beats
  a: UNKNOWN_MEMBER_ID
> b joins
  b: joined 2 with range, leads b
""")


def test_member_dies_in_a_stable_group() -> None:
    """A member without requests for a session timeout is removed; heartbeats and commits extend the session."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> wait 9
> a beats
  a: NONE
> b commits
  b: NONE
> wait 9.9
> a beats
  a: NONE
> wait 0.1
> a beats
  a: REBALANCE_IN_PROGRESS
> b beats
  b: UNKNOWN_MEMBER_ID
""")


def test_member_leaves_while_requests_are_pending() -> None:
    """Pending requests of a member that leaves are answered with UNKNOWN_MEMBER_ID."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> b syncs
> b leaves
  b: UNKNOWN_MEMBER_ID
  b: left, NONE
> show
  PreparingRebalance 1: a, led by a
> a joins
  a: joined 2 with range, leads a
> a syncs a=0
  log: 2: a=0
> commit
  a: assigned '0'
> c joins version=0
> c joins version=0
> show
  PreparingRebalance 2: a c c, led by a
""")


def test_all_members_die() -> None:
    """A group whose members all die becomes empty."""
    check_transcript("""
> a joins version=0
> b joins version=0 session=15000
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> wait 15
  log: 2: none
> show
  Empty 2: none
""")


# --- coordinators ----------------------------------------------------------------------------------------------------


def test_coordinator_dies_before_any_member_joined() -> None:
    """Unused member IDs are lost in a failover; the clients must request new ones."""
    check_transcript("""
> a joins
  a: MEMBER_ID_REQUIRED
> fail over
  no group
> a joins
  a: UNKNOWN_MEMBER_ID
> a joins as=
  a: MEMBER_ID_REQUIRED
""")


def test_coordinator_dies_while_members_wait() -> None:
    """Waiting members are redirected to the new coordinator, where a group that was never written starts empty."""
    check_transcript(
        """
> a joins version=0
> b joins version=0
> fail over
  a: NOT_COORDINATOR
  b: NOT_COORDINATOR
  no group
> a joins version=0
""",
        initial_rebalance_delay_ms=3000,
    )


def test_coordinator_dies_before_the_assignment() -> None:
    """A generation that was not written is lost in a failover; its members must join as new ones."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> b syncs
> fail over
  b: NOT_COORDINATOR
  no group
> a syncs a=0 b=1
  a: UNKNOWN_MEMBER_ID
> a beats
  a: UNKNOWN_MEMBER_ID
> b joins
  b: UNKNOWN_MEMBER_ID
> b joins as=
> wait 0
  b: joined 1 with range, leads b
""")


def test_coordinator_dies_before_the_assignment_is_committed() -> None:
    """An assignment that is uncommitted at a failover is lost; no member has received it."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> fail over
  a: NOT_COORDINATOR
  b: NOT_COORDINATOR
  no group
""")


def test_coordinator_dies_in_a_stable_group() -> None:
    """A loaded stable group keeps its members, whose sessions start again."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> wait 9
> fail over
  Stable 1: a b, led by a
> wait 9.9
> a beats
  a: NONE
> b beats
  b: NONE
> b syncs
  b: assigned '1'
> a commits
  a: NONE
> b joins
  b: joined 1 with range, follows a
> c joins version=0
> a beats
  a: REBALANCE_IN_PROGRESS
> a joins
> b joins
  a: joined 2 with range, leads a b c
  b: joined 2 with range, follows a
  c: joined 2 with range, follows a
""")


def test_member_and_coordinator_die() -> None:
    """A member that does not contact the new coordinator is removed after its session timeout."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> fail over
  Stable 1: a b, led by a
> wait 9
> a beats
  a: NONE
> wait 1
> a beats
  a: REBALANCE_IN_PROGRESS
> show
  PreparingRebalance 1: a, led by a
""")


def test_coordinator_dies_while_members_rejoin() -> None:
    """A rebalance in progress is lost in a failover; the group keeps its last generation until a member rejoins."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> c joins version=0
> a joins
> fail over
  a: NOT_COORDINATOR
  c: NOT_COORDINATOR
  Stable 1: a b, led by a
> b beats
  b: NONE
> c joins as= version=0
> b beats
  b: REBALANCE_IN_PROGRESS
> b joins
> a joins
  a: joined 2 with range, leads a b c
  b: joined 2 with range, follows a
  c: joined 2 with range, follows a
""")


def test_coordinator_dies_between_two_generations() -> None:
    """The new coordinator refuses requests with a generation that was not written."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> a joins
> b joins
  a: joined 2 with range, leads a b
  b: joined 2 with range, follows a
> fail over
  Stable 1: a b, led by a
> a beats
  a: ILLEGAL_GENERATION
> b syncs
  b: ILLEGAL_GENERATION
> b commits
  b: ILLEGAL_GENERATION
> a joins
> b beats generation=1
  b: REBALANCE_IN_PROGRESS
""")


def test_coordinator_dies_before_the_empty_group_is_written() -> None:
    """A member whose leave was not written is removed by the new coordinator after its session timeout."""
    check_transcript("""
> a joins version=0
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: assigned '0'
> a leaves
  log: 2: none
  a: left, NONE
> fail over
  Stable 1: a, led by a
> wait 10
  log: 2: none
> commit
> show
  Empty 2: none
""")


def test_rejected_record_of_an_empty_group() -> None:
    """If the record of an empty group is rejected, the group stays empty and new members can join."""
    check_transcript("""
> a joins version=0
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: assigned '0'
> a leaves
  log: 2: none
  a: left, NONE
> reject COORDINATOR_NOT_AVAILABLE
> show
  Empty 2: none
> a joins as= version=0
> wait 0
  a: joined 3 with range, leads a
""")


def test_coordinator_dies_before_a_static_member_is_written() -> None:
    """If a static member's replacement was not written before a failover, the new coordinator replaces it again."""
    check_transcript("""
> a joins static=one
> b joins static=two
> wait 0
  a: joined 1 with range, leads a two
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> b2 joins static=two
  log: 1: a=0 two=1
> fail over
  b2: NOT_COORDINATOR
  Stable 1: a b, led by a
> b beats
  b: NONE
> b2 joins
  log: 1: a=0 two=1
> commit
  b2: joined 1 with range, follows a
> b beats
  b: FENCED_INSTANCE_ID
> fail over
  Stable 1: a b2, led by a
> b2 beats
  b2: NONE
> b beats
  b: FENCED_INSTANCE_ID
""")


def test_former_coordinator_returns() -> None:
    """A former coordinator redirects requests and has no timers until it loads the group again."""
    check_transcript("""
> a joins version=0
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: assigned '0'
> unload
> a beats
  a: NOT_COORDINATOR
> a joins
  a: NOT_COORDINATOR
> wait 100
> load
  Stable 1: a, led by a
> a beats
  a: NONE
""")


def test_coordinator_loses_zookeeper() -> None:
    """Without a ZooKeeper session, the coordinator redirects members, but heartbeats still extend their sessions."""
    scene = ClassicScene(initial_rebalance_delay_ms=0)
    story = Story(scene)
    story.run("> a joins version=0\n> b joins version=0\n> wait 0\n> a syncs a=0 b=1\n> b syncs\n> commit")
    scene.shards.has_lease = False
    transcript = """\
> wait 9
> a beats
  a: NOT_COORDINATOR
> b joins
  b: NOT_COORDINATOR
> b syncs
  b: NOT_COORDINATOR
> wait 9
> a beats
  a: NOT_COORDINATOR
> show
  PreparingRebalance 1: a, led by a
"""
    assert story.run(transcript) == transcript
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        scene.coordinator.leave(GROUP, [])
    scene.shards.has_lease = True
    transcript = """\
> a beats
  a: REBALANCE_IN_PROGRESS
> a joins
  a: joined 2 with range, leads a
"""
    assert story.run(transcript) == transcript


def test_loaded_group_above_the_size_limit_shrinks() -> None:
    """A loaded group above the size limit rebalances and keeps only the first members to rejoin (KIP-389)."""
    scene = ClassicScene(initial_rebalance_delay_ms=0)
    story = Story(scene)
    story.run("> a joins version=0\n> b joins version=0\n> wait 0\n> a syncs a=0 b=1\n> b syncs\n> commit")
    scene.config = replace(scene.config, size_max=1)
    transcript = """\
> fail over
  PreparingRebalance 1: a b, led by a
> b beats
  b: REBALANCE_IN_PROGRESS
> b joins
> a joins
  a: GROUP_MAX_SIZE_REACHED
  b: joined 2 with range, leads b
"""
    assert story.run(transcript) == transcript
