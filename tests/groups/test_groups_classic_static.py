"""Static members rejoin with their instance ids without a rebalance (KIP-345, KIP-814)."""

from __future__ import annotations

from classic_scene import tells


def test_replaced_follower() -> None:
    """A restarted static follower keeps its assignment without a rebalance; its old id is fenced."""
    tells("""
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


def test_replaced_leader() -> None:
    """A restarted static leader leads again, with skip_assignment set."""
    tells("""
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


def test_replaced_leader_of_old_version() -> None:
    """Before KIP-814 a restarted leader is not named as leader, so that it does not assign again."""
    tells("""
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


def test_replaced_where_the_choice_changes() -> None:
    """A static member that rejoins with other protocols starts a rebalance."""
    tells("""
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


def test_replacement_cannot_be_written() -> None:
    """If the new id cannot be written, the old one is restored."""
    tells("""
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
> refuse COORDINATOR_NOT_AVAILABLE
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
    """If the new id cannot be written, the new protocols and timeouts are discarded too."""
    tells("""
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
> refuse COORDINATOR_NOT_AVAILABLE
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


def test_replacement_is_heard() -> None:
    """A replacement starts with a full session."""
    tells("""
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


def test_replacement_that_takes_long_to_write() -> None:
    """A replacement that waits longer than a session stays a member, with a full session after the response."""
    tells("""
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
  log: 2: nobody
> show
  Empty 2: nobody
""")


def test_replaced_twice_before_it_is_written() -> None:
    """Of two replacements of one instance id, the last one stays."""
    tells("""
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


def test_replaced_while_a_rebalance_begins() -> None:
    """A replacement just before a rebalance counts as joined."""
    tells("""
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


def test_replaced_while_members_join() -> None:
    """During the join phase, the waiting member is fenced and the replacement waits instead."""
    tells("""
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


def test_replaced_while_the_assignment_is_awaited() -> None:
    """A replacement during the sync phase starts a rebalance, because the leader assigns to the old id."""
    tells("""
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


def test_leaves_without_saying_so() -> None:
    """A static member that stops keeps its assignment until its session expires."""
    tells("""
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


def test_away_during_a_rebalance() -> None:
    """A rebalance does without a static member that is away, but keeps its place; who never asks loses it."""
    tells("""
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


def test_nobody_of_the_static_members_comes() -> None:
    """While none of its static members comes, a group waits, until their sessions end."""
    tells("""
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
  log: 2: nobody
> show
  Empty 2: nobody
""")


def test_removed_by_an_administrator() -> None:
    """An administrator removes a static member by its instance id alone."""
    tells("""
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


def test_leaves_under_an_instance_that_is_taken() -> None:
    """Who was replaced cannot leave in the name of who came after it."""
    tells("""
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


def test_unknown_member_of_an_instance() -> None:
    """A member id that nobody has is unknown, whatever instance it claims; one of another instance is fenced."""
    tells("""
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


def test_told_an_id_without_an_instance() -> None:
    """Who was told an id as a dynamic member does not become a static one by it."""
    tells("""
> a joins
  a: MEMBER_ID_REQUIRED
> a joins static=one
  a: UNKNOWN_MEMBER_ID
> a joins as= static=one
> wait 0
  a: joined 1 by range, leads a
""")
