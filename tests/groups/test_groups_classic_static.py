"""Static members rejoin with their instance ids without a rebalance (KIP-345, KIP-814)."""

from __future__ import annotations

from classic_scene import check_transcript


def test_static_follower_restarts() -> None:
    """The follower keeps its assignment without a rebalance; its old ID is fenced."""
    check_transcript("""
> a joins static=one
> b joins static=two
> wait 0
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> b2 joins static=two
  log: 1: a=0 two=1
> commit
  b2: joined 1 by range, follows a
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
  b2: does '1'
> b2 beats
  b2: NONE
""")


def test_static_leader_restarts() -> None:
    """The leader leads again, with skip_assignment set."""
    check_transcript("""
> a joins static=one
> b joins static=two
> wait 0
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> a2 joins static=one
  log: 1: b=1 one=0
> commit
  a2: joined 1 by range, leads b a2, skips the assignment
> a2 syncs
  a2: does '0'
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
    """Before KIP-814 the response does not name it as leader, so that it does not assign again."""
    check_transcript("""
> a joins static=one version=5
> b joins static=two
> wait 0
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> a2 joins static=one version=5
  log: 1: b=1 one=0
> commit
  a2: joined 1 by range, follows a
> show
  Stable 1: b a2, led by a2
""")


def test_restart_with_other_protocols_starts_a_rebalance() -> None:
    check_transcript("""
> a joins static=one speaks=range,sticky
> wait 0
  a: joined 1 by range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: does '0'
> a2 joins static=one speaks=sticky,range
  a2: joined 2 by sticky, leads a2
> show
  CompletingRebalance 2: a2, led by a2
""")


def test_replacement_that_cannot_be_written() -> None:
    """The old member ID is restored."""
    check_transcript("""
> a joins static=one
> b joins static=two
> wait 0
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
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
  b2: joined 1 by range, follows a
> b beats
  b: FENCED_INSTANCE_ID
""")


def test_replacement_that_cannot_be_written_changes_nothing_else() -> None:
    """The replacement's new protocols and timeouts are discarded too."""
    check_transcript("""
> a joins static=one
> b joins static=two
> wait 0
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
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
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> wait 9
> a beats
  a: NONE
> b2 joins static=two
  log: 1: a=0 two=1
> commit
  b2: joined 1 by range, follows a
> wait 9
> a beats
  a: NONE
> b2 beats
  b2: NONE
""")


def test_replacement_with_a_slow_write() -> None:
    """The replacement stays a member after a wait longer than its session, with a full session from the response on."""
    check_transcript("""
> a joins static=one
> wait 0
  a: joined 1 by range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: does '0'
> a2 joins static=one
  log: 1: one=0
> wait 29.9
> commit
  a2: joined 1 by range, leads a2, skips the assignment
> wait 9.9
> show
  Stable 1: a2, led by a2
> wait 0.1
  log: 2: none
> show
  Empty 2: none
""")


def test_two_replacements_before_the_write() -> None:
    """The last one stays."""
    check_transcript("""
> a joins static=one
> wait 0
  a: joined 1 by range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: does '0'
> a2 joins static=one
  log: 1: one=0
> a3 joins static=one
  log: 1: one=0
  a2: FENCED_INSTANCE_ID
> commit 1
> commit
  a3: joined 1 by range, leads a3, skips the assignment
> a2 beats
  a2: FENCED_INSTANCE_ID
> a3 beats
  a3: NONE
""")


def test_replacement_just_before_a_rebalance_counts_as_joined() -> None:
    check_transcript("""
> a joins static=one
> b joins static=two
> wait 0
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> b2 joins static=two
  log: 1: a=0 two=1
> c joins version=0
> commit
> a joins
  a: joined 2 by range, leads a two c
  b2: joined 2 by range, follows a
  c: joined 2 by range, follows a
""")


def test_replacement_during_the_join_phase() -> None:
    """The waiting member is fenced and the replacement waits instead."""
    check_transcript("""
> a joins static=one
> b joins static=two
> wait 0
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> a joins
> a2 joins static=one
  a: FENCED_INSTANCE_ID
> b joins
  b: joined 2 by range, follows one
  a2: joined 2 by range, leads b a2
> show
  CompletingRebalance 2: b a2, led by a2
""")


def test_replacement_during_the_sync_phase() -> None:
    """The replacement starts a rebalance, because the leader assigns to the old ID."""
    check_transcript("""
> a joins static=one
> b joins static=two
> wait 0
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> b syncs
> b2 joins static=two
  b: FENCED_INSTANCE_ID
> a syncs a=0 b=1
  a: REBALANCE_IN_PROGRESS
> a joins
  a: joined 2 by range, leads a two
  b2: joined 2 by range, follows a
""")


def test_static_member_that_stops_keeps_its_assignment() -> None:
    """The assignment is kept until the session expires."""
    check_transcript("""
> a joins static=one session=6000
> b joins static=two session=20000
> wait 0
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
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
    """The rebalance completes without it; it keeps its membership until its session expires."""
    check_transcript("""
> a joins static=one session=60000 patience=5000
> b joins static=two session=60000 patience=5000
> wait 0
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> a joins
> wait 5
  a: joined 2 by range, leads a b
> a syncs a=0 b=1
  log: 2: a=0 b=1
> commit
  a: does '0'
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
    """The group waits for them until their sessions expire."""
    check_transcript("""
> a joins static=one session=20000 patience=5000
> b joins static=two session=20000 patience=5000
> wait 0
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
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
    """The member's instance ID is sufficient."""
    check_transcript("""
> a joins static=one
> b joins static=two
> wait 0
  a: joined 1 by range, leads a two
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
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
  a: joined 2 by range, leads a two
  b2: joined 2 by range, follows a
""")


def test_replaced_member_cannot_leave() -> None:
    """Leaving with its instance ID would remove its replacement."""
    check_transcript("""
> a joins static=one
> wait 0
  a: joined 1 by range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: does '0'
> a2 joins static=one
  log: 1: one=0
> commit
  a2: joined 1 by range, leads a2, skips the assignment
> a leaves
  a: left, FENCED_INSTANCE_ID
> show
  Stable 1: a2, led by a2
""")


def test_member_ids_of_an_instance() -> None:
    """An unknown member ID is unknown for every instance ID; that of another instance is fenced."""
    check_transcript("""
> a joins static=one
> wait 0
  a: joined 1 by range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: does '0'
> b joins static=two as=x
  b: UNKNOWN_MEMBER_ID
> b joins static=one as=x
  b: FENCED_INSTANCE_ID
""")


def test_member_id_of_a_dynamic_member_stays_dynamic() -> None:
    """A client with an ID assigned to a dynamic member cannot become static with it."""
    check_transcript("""
> a joins
  a: MEMBER_ID_REQUIRED
> a joins static=one
  a: UNKNOWN_MEMBER_ID
> a joins as= static=one
> wait 0
  a: joined 1 by range, leads a
""")
