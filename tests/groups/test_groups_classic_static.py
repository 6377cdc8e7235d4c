"""Static members rejoin with their instance IDs without a rebalance (KIP-345, KIP-814)."""

from __future__ import annotations

from classic_scene import check_transcript


def test_static_follower_restarts() -> None:
    """A restarted static follower keeps its assignment without a rebalance, and its old member ID is fenced."""
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
> commit
  b2: joined 1 with range, follows a
> a beats
  a: NONE
> b beats
  b: FENCED_INSTANCE_ID
> b commits
  b: FENCED_INSTANCE_ID
> b syncs
  b: FENCED_INSTANCE_ID
> b joins
  b: FENCED_INSTANCE_ID
> b2 syncs
  b2: assigned '1'
> b2 beats
  b2: NONE
""")


def test_static_leader_restarts() -> None:
    """A restarted static leader remains leader; its JoinGroup response has skip_assignment set."""
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
> a2 joins static=one
  log: 1: b=1 one=0
> commit
  a2: joined 1 with range, leads b a2, skips the assignment
> a2 syncs
  a2: assigned '0'
> b beats
  b: NONE
> show
  Stable 1: b a2, led by a2
> fail over
  Stable 1: b a2, led by a2
> a2 joins
> b beats
  b: REBALANCE_IN_PROGRESS
""")


def test_static_leader_of_an_old_version_restarts() -> None:
    """A client older than KIP-814 is not named leader in the response, which prevents it from assigning again."""
    check_transcript("""
> a joins static=one version=5
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
> a2 joins static=one version=5
  log: 1: b=1 one=0
> commit
  a2: joined 1 with range, follows a
> show
  Stable 1: b a2, led by a2
""")


def test_restart_with_other_protocols_starts_a_rebalance() -> None:
    check_transcript("""
> a joins static=one protocols=range,sticky
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: assigned '0'
> a2 joins static=one protocols=sticky,range
  a2: joined 2 with sticky, leads a2
> show
  CompletingRebalance 2: a2, led by a2
""")


def test_replacement_that_cannot_be_written() -> None:
    """If a static member's replacement cannot be written, the old member ID is restored."""
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
> reject COORDINATOR_NOT_AVAILABLE
  b2: COORDINATOR_NOT_AVAILABLE
> b beats
  b: NONE
> show
  Stable 1: a b, led by a
> b2 joins
  log: 1: a=0 two=1
> commit
  b2: joined 1 with range, follows a
> b beats
  b: FENCED_INSTANCE_ID
""")


def test_replacement_that_cannot_be_written_changes_nothing_else() -> None:
    """The protocols and timeouts of a replacement that cannot be written are discarded, too."""
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
> wait 9
> a beats
  a: NONE
> b2 joins static=two session=60000
  log: 1: a=0 two=1
> reject COORDINATOR_NOT_AVAILABLE
  b2: COORDINATOR_NOT_AVAILABLE
> wait 9
> a beats
  a: NONE
> b beats
  b: NONE
> wait 9
> a beats
  a: NONE
> wait 1
> a beats
  a: REBALANCE_IN_PROGRESS
> show
  PreparingRebalance 1: a, led by a
""")


def test_replacement_starts_with_a_full_session() -> None:
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
> wait 9
> a beats
  a: NONE
> b2 joins static=two
  log: 1: a=0 two=1
> commit
  b2: joined 1 with range, follows a
> wait 9
> a beats
  a: NONE
> b2 beats
  b2: NONE
""")


def test_replacement_with_a_slow_write() -> None:
    """A replacement whose write takes longer than its session timeout stays; its session starts with the response."""
    check_transcript("""
> a joins static=one
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: assigned '0'
> a2 joins static=one
  log: 1: one=0
> wait 29.9
> commit
  a2: joined 1 with range, leads a2, skips the assignment
> wait 9.9
> show
  Stable 1: a2, led by a2
> wait 0.1
  log: 2: none
> show
  Empty 2: none
""")


def test_two_replacements_before_the_write() -> None:
    """If a static member is replaced twice before the write is committed, the last replacement remains."""
    check_transcript("""
> a joins static=one
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: assigned '0'
> a2 joins static=one
  log: 1: one=0
> a3 joins static=one
  log: 1: one=0
  a2: FENCED_INSTANCE_ID
> commit 1
> commit
  a3: joined 1 with range, leads a3, skips the assignment
> a2 beats
  a2: FENCED_INSTANCE_ID
> a3 beats
  a3: NONE
""")


def test_replacement_just_before_a_rebalance_takes_part() -> None:
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
> c joins version=0
> commit
> a joins
  a: joined 2 with range, leads a two c
  b2: joined 2 with range, follows a
  c: joined 2 with range, follows a
""")


def test_replacement_during_the_join_phase() -> None:
    """A waiting member that is replaced is fenced, and its replacement waits instead."""
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
> a joins
> a2 joins static=one
  a: FENCED_INSTANCE_ID
> b joins
  b: joined 2 with range, follows one
  a2: joined 2 with range, leads b a2
> show
  CompletingRebalance 2: b a2, led by a2
""")


def test_replacement_during_the_sync_phase() -> None:
    """A replacement during the sync phase starts a rebalance, because the leader assigns to the old ID."""
    check_transcript("""
> a joins static=one
> b joins static=two
> wait 0
  a: joined 1 with range, leads a two
  b: joined 1 with range, follows a
> b syncs
> b2 joins static=two
  b: FENCED_INSTANCE_ID
> a syncs a=0 b=1
  a: REBALANCE_IN_PROGRESS
> a joins
  a: joined 2 with range, leads a two
  b2: joined 2 with range, follows a
""")


def test_static_member_that_stops_keeps_its_assignment() -> None:
    """A stopped static member keeps its assignment until its session expires."""
    check_transcript("""
> a joins static=one session=6000
> b joins static=two session=20000
> wait 0
  a: joined 1 with range, leads a two
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> wait 5
> b beats
  b: NONE
> show
  Stable 1: a b, led by a
> wait 1
> b beats
  b: REBALANCE_IN_PROGRESS
> show
  PreparingRebalance 1: b, led by b
""")


def test_absent_static_member_during_a_rebalance() -> None:
    """A rebalance completes without an absent static member, which stays a member until its session expires."""
    check_transcript("""
> a joins static=one session=60000 rebalance=5000
> b joins static=two session=60000 rebalance=5000
> wait 0
  a: joined 1 with range, leads a two
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> a joins
> wait 5
  a: joined 2 with range, leads a b
> a syncs a=0 b=1
  log: 2: a=0 b=1
> commit
  a: assigned '0'
> wait 4
> a beats
  a: NONE
> show
  Stable 2: a b, led by a
> wait 1
> a beats
  a: REBALANCE_IN_PROGRESS
> show
  PreparingRebalance 2: a, led by a
""")


def test_all_static_members_are_absent() -> None:
    """If all static members are absent, the rebalance waits until their sessions expire."""
    check_transcript("""
> a joins static=one session=20000 rebalance=5000
> b joins static=two session=20000 rebalance=5000
> wait 0
  a: joined 1 with range, leads a two
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> a is removed
  a: left, NONE
> show
  PreparingRebalance 1: b, led by b
> wait 6
> show
  PreparingRebalance 1: b, led by b
> wait 10
> show
  PreparingRebalance 1: b, led by b
> wait 4
  log: 2: none
> show
  Empty 2: none
""")


def test_administrator_removes_a_static_member() -> None:
    """An administrator can remove a static member by its instance ID alone."""
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
> b is removed
  b: left, NONE
> a beats
  a: REBALANCE_IN_PROGRESS
> b beats
  b: UNKNOWN_MEMBER_ID
> b is removed
  b: left, UNKNOWN_MEMBER_ID
> b2 joins static=two
> a joins
  a: joined 2 with range, leads a two
  b2: joined 2 with range, follows a
""")


def test_replaced_member_cannot_leave() -> None:
    """A replaced member is fenced when it leaves; otherwise its instance ID would remove the replacement."""
    check_transcript("""
> a joins static=one
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: assigned '0'
> a2 joins static=one
  log: 1: one=0
> commit
  a2: joined 1 with range, leads a2, skips the assignment
> a leaves
  a: left, FENCED_INSTANCE_ID
> show
  Stable 1: a2, led by a2
""")


def test_member_ids_of_an_instance() -> None:
    """A wrong member ID is fenced if its instance ID is in use, and unknown otherwise."""
    check_transcript("""
> a joins static=one
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: assigned '0'
> b joins static=two as=x
  b: UNKNOWN_MEMBER_ID
> b joins static=one as=x
  b: FENCED_INSTANCE_ID
""")


def test_member_id_of_a_dynamic_member_stays_dynamic() -> None:
    """A client cannot become static with a member ID that was assigned to it as a dynamic member."""
    check_transcript("""
> a joins
  a: MEMBER_ID_REQUIRED
> a joins static=one
  a: UNKNOWN_MEMBER_ID
> a joins as= static=one
> wait 0
  a: joined 1 with range, leads a
""")
