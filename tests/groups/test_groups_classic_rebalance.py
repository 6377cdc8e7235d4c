"""Members join, are assigned partitions, and go: what each is told, and what is written to the log."""

from __future__ import annotations

import pytest
from classic_scene import tells

from kreplica.groups.classic import joining


def test_first_rebalance() -> None:
    """A client is told its id first; then a group of one leads itself, and has its part once that is committed."""
    tells("""
> a joins
  a: MEMBER_ID_REQUIRED
> a joins
> wait 0
  a: joined 1 by range, leads a
> a syncs a=everything
  log: 1: a=everything
> commit
  a: does 'everything'
> a beats
  a: NONE
> show
  Stable 1: a, led by a
""")


def test_old_client_is_a_member_at_once() -> None:
    """A client older than KIP-394 joins without being told an id first."""
    tells("""
> a joins version=3
> wait 0
  a: joined 1 by range, leads a
""")


def test_initial_delay_extends() -> None:
    """An empty group waits for more members, and waits on while some come."""
    tells(
        """
> a joins version=0
> wait 2.9
> b joins version=0
> wait 2.9
> show
  PreparingRebalance 0: a b, led by a
> wait 0.3
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
""",
        initial_rebalance_delay_ms=3000,
    )


def test_members_that_give_nobody_time() -> None:
    """A client may say that it waits for nobody, by a time below zero: who has not joined at once is left behind."""
    tells(
        """
> a joins version=0 patience=-1
> wait 0
  a: joined 1 by range, leads a
  log: 2: nobody
> a syncs a=0
  a: UNKNOWN_MEMBER_ID
> commit
> b joins version=0 patience=-1
> wait 0
  b: joined 3 by range, leads b
  log: 4: nobody
> b syncs b=0
  b: UNKNOWN_MEMBER_ID
> commit
> a beats
  a: UNKNOWN_MEMBER_ID
""",
        initial_rebalance_delay_ms=-1,
    )


def test_initial_delay_ends() -> None:
    """However many come, nobody waits longer than members may take to join."""
    tells(
        """
> a joins version=0 patience=5000
> wait 2
> b joins version=0 patience=5000
> wait 2
> c joins version=0 patience=5000
> wait 0.9
> show
  PreparingRebalance 0: a b c, led by a
> wait 0.2
  a: joined 1 by range, leads a b c
  b: joined 1 by range, follows a
  c: joined 1 by range, follows a
""",
        initial_rebalance_delay_ms=3000,
    )


def test_member_comes() -> None:
    """When somebody comes to a stable group, members learn it by their heartbeats and join again."""
    tells("""
> a joins version=0
> wait 0
  a: joined 1 by range, leads a
> a syncs a=0,1
  log: 1: a=0,1
> commit
  a: does '0,1'
> b joins
  b: MEMBER_ID_REQUIRED
> b joins
> a beats
  a: REBALANCE_IN_PROGRESS
> a commits
  a: NONE
> a joins
  a: joined 2 by range, leads a b
  b: joined 2 by range, follows a
> b syncs
> a syncs a=0 b=1
  log: 2: a=0 b=1
> commit
  a: does '0'
  b: does '1'
> a beats
  a: NONE
> b beats
  b: NONE
""")


def test_member_leaves() -> None:
    """When somebody leaves, the others share out what it had."""
    tells("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> b leaves
  b: left, NONE
> b beats
  b: UNKNOWN_MEMBER_ID
> a beats
  a: REBALANCE_IN_PROGRESS
> a joins
  a: joined 2 by range, leads a
> a syncs a=0,1
  log: 2: a=0,1
> commit
  a: does '0,1'
""")


def test_leader_leaves() -> None:
    """When the leader leaves, another leads."""
    tells("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> a leaves
  a: left, NONE
> b joins
  b: joined 2 by range, leads b
> b syncs b=0,1
  log: 2: b=0,1
> commit
  b: does '0,1'
> show
  Stable 2: b, led by b
""")


def test_last_member_leaves() -> None:
    """A group whose last member leaves is empty, in a new generation, and that is written."""
    tells("""
> a joins version=0
> wait 0
  a: joined 1 by range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: does '0'
> a leaves
  log: 2: nobody
  a: left, NONE
> show
  Empty 2: nobody
> commit
> fail over
  Empty 2: nobody
""")


def test_rejoining_follower_of_stable_group() -> None:
    """A follower that joins again with nothing new is told what it was told before, and nobody else is disturbed."""
    tells("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> b joins
  b: joined 1 by range, follows a
> a beats
  a: NONE
> b syncs
  b: does '1'
""")


def test_rejoining_leader_of_stable_group() -> None:
    """A leader that joins again has seen something that its assignment does not account for: all join again."""
    tells("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> a joins
> b beats
  b: REBALANCE_IN_PROGRESS
> b joins
  a: joined 2 by range, leads a b
  b: joined 2 by range, follows a
""")


def test_rejoining_with_other_metadata() -> None:
    """A follower that joins again and speaks something else makes all join again."""
    tells("""
> a joins version=0 speaks=range,sticky
> b joins version=0 speaks=range,sticky
> wait 0
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> b joins speaks=sticky,range
> a beats
  a: REBALANCE_IN_PROGRESS
> a joins speaks=sticky,range
  a: joined 2 by sticky, leads a b
  b: joined 2 by sticky, follows a
""")


def test_missed_answer() -> None:
    """A member that did not get its answer joins again before the assignment is there, and gets the same answer."""
    tells("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
> b joins
  b: joined 1 by range, follows a
> a joins
  a: joined 1 by range, leads a b
> show
  CompletingRebalance 1: a b, led by a
""")


def test_second_request_takes_the_place_of_the_first() -> None:
    """Of two requests of one member that wait, the first is answered too, so that its connection goes on."""
    tells("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> b syncs
  b: REBALANCE_IN_PROGRESS
> commit
  a: does '0'
  b: does '1'
> a joins
> a joins
  a: REBALANCE_IN_PROGRESS
""")


def test_most_liked_protocol() -> None:
    """The protocol is chosen that most members like best, of those that all of them speak."""
    tells("""
> a joins version=0 speaks=range,sticky,robin
> b joins version=0 speaks=robin,sticky
> c joins version=0 speaks=sticky,robin
> d joins version=0 speaks=sticky,robin
> e joins version=0 speaks=range
  e: INCONSISTENT_GROUP_PROTOCOL
> wait 0
  a: joined 1 by sticky, leads a b c d
  b: joined 1 by sticky, follows a
  c: joined 1 by sticky, follows a
  d: joined 1 by sticky, follows a
""")


def test_asking_late_is_heard() -> None:
    """A member that asks for its assignment when all others have theirs has a whole session from then."""
    tells("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> commit
  a: does '0'
> wait 9
> a beats
  a: NONE
> b syncs
  b: does '1'
> wait 9
> a beats
  a: NONE
> b beats
  b: NONE
""")


def test_another_type() -> None:
    """Who is of another type than the group, or speaks nothing, is refused; an empty group takes any type."""
    tells("""
> a joins version=0
> wait 0
  a: joined 1 by range, leads a
> b joins type=connect
  b: INCONSISTENT_GROUP_PROTOCOL
> c joins speaks=sticky
  c: INCONSISTENT_GROUP_PROTOCOL
> a leaves
  log: 2: nobody
  a: left, NONE
> commit
> d joins type=
  d: INCONSISTENT_GROUP_PROTOCOL
> b joins type=connect version=0
> wait 0
  b: joined 3 by range, leads b
""")


def test_members_during_a_rebalance() -> None:
    """While members are asked to join, who has not joined yet may commit and is told to join; who syncs is told too."""
    tells("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> a joins
> b beats
  b: REBALANCE_IN_PROGRESS
> b commits
  b: NONE
> b syncs
  b: REBALANCE_IN_PROGRESS
> b joins
  a: joined 2 by range, leads a b
  b: joined 2 by range, follows a
> b commits
  b: REBALANCE_IN_PROGRESS
> b commits txn=1
  b: NONE
> b beats
  b: NONE
""")


def test_group_is_full() -> None:
    """A group takes no more members than it may have; when one leaves there is room."""
    tells(
        """
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
> c joins
  c: GROUP_MAX_SIZE_REACHED
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> c joins
  c: GROUP_MAX_SIZE_REACHED
> a leaves
  a: left, NONE
> c joins
  c: MEMBER_ID_REQUIRED
> c joins
> b joins
  b: joined 2 by range, leads b c
  c: joined 2 by range, follows b
""",
        size_max=2,
    )


def test_members_come_at_the_same_time_to_a_group_that_fills_up() -> None:
    """Of those who join at the same time the first ones stay."""
    tells(
        """
> a joins
  a: MEMBER_ID_REQUIRED
> b joins
  b: MEMBER_ID_REQUIRED
> c joins
  c: MEMBER_ID_REQUIRED
> c joins
> a joins
> b joins
  b: GROUP_MAX_SIZE_REACHED
> wait 0
> b joins as=
  b: GROUP_MAX_SIZE_REACHED
""",
        size_max=2,
        initial_rebalance_delay_ms=1000,
    )


def test_members_of_a_full_group_join_again() -> None:
    """A group that is full keeps its members: they join again, also twice in one rebalance."""
    tells(
        """
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
> b joins
  b: joined 1 by range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
> a joins
> a joins
  a: REBALANCE_IN_PROGRESS
> b joins
  a: joined 2 by range, leads a b
  b: joined 2 by range, follows a
""",
        size_max=2,
    )


def test_somebody_with_an_id_comes_to_a_group_that_is_full_by_now() -> None:
    """Who was told an id, and finds the group full, is turned away, and nobody waits for it any more."""
    tells(
        """
> a joins version=0
> wait 0
  a: joined 1 by range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: does '0'
> c joins
  c: MEMBER_ID_REQUIRED
> b joins version=0
> a joins
> a joins
  a: REBALANCE_IN_PROGRESS
> show
  PreparingRebalance 1: a b, led by a
> c joins
  c: GROUP_MAX_SIZE_REACHED
  a: joined 2 by range, leads a b
  b: joined 2 by range, follows a
> c joins
  c: GROUP_MAX_SIZE_REACHED
""",
        size_max=2,
    )


def test_many_ids_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more ids are told when too many have not come with theirs; whoever has one may come."""
    monkeypatch.setattr(joining, "PENDING_MAX", 2)
    tells(
        """
> a joins
  a: MEMBER_ID_REQUIRED
> b joins
  b: MEMBER_ID_REQUIRED
> c joins
  c: GROUP_MAX_SIZE_REACHED
> b joins
> c joins
  c: MEMBER_ID_REQUIRED
> wait 10
  b: joined 1 by range, leads b
> c joins as=
  c: MEMBER_ID_REQUIRED
""",
        initial_rebalance_delay_ms=5000,
    )


def test_joined_but_never_told() -> None:
    """Somebody who is told an id and does not come holds the others up no longer than its session."""
    tells("""
> a joins version=0
> wait 0
  a: joined 1 by range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: does '0'
> b joins session=6000
  b: MEMBER_ID_REQUIRED
> c joins version=0
> a joins
> show
  PreparingRebalance 1: a c, led by a
> wait 5.9
> wait 0.1
  a: joined 2 by range, leads a c
  c: joined 2 by range, follows a
""")


def test_pending_member_leaves() -> None:
    """Somebody who was told an id may leave instead of joining."""
    tells("""
> b joins
  b: MEMBER_ID_REQUIRED
> show
  Empty 0: nobody
> b leaves
  b: left, NONE
> show
  no group
> b leaves
  b: left, UNKNOWN_MEMBER_ID
""")


def test_refused_write() -> None:
    """When the assignment cannot be written, everybody is told, and joins again."""
    tells("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 by range, leads a b
  b: joined 1 by range, follows a
> b syncs
> a syncs a=0 b=1
  log: 1: a=0 b=1
> refuse COORDINATOR_NOT_AVAILABLE
  a: COORDINATOR_NOT_AVAILABLE
  b: COORDINATOR_NOT_AVAILABLE
> show
  PreparingRebalance 1: a b, led by a
> a beats
  a: REBALANCE_IN_PROGRESS
> a joins
> b joins
  a: joined 2 by range, leads a b
  b: joined 2 by range, follows a
> a syncs a=0 b=1
  log: 2: a=0 b=1
> b syncs
> commit
  a: does '0'
  b: does '1'
""")


def test_assignment_too_large() -> None:
    """An assignment that is too large for a batch is nothing that members can help."""
    tells("""
> a joins version=0
> wait 0
  a: joined 1 by range, leads a
> a syncs a=0
  log: 1: a=0
> refuse MESSAGE_TOO_LARGE
  a: UNKNOWN_SERVER_ERROR
""")


def test_answer_of_the_log_comes_late() -> None:
    """An assignment that is committed when the group has gone on is nobody's any more."""
    tells("""
> a joins version=0
> wait 0
  a: joined 1 by range, leads a
> a syncs a=early
  log: 1: a=early
> b joins version=0
  a: REBALANCE_IN_PROGRESS
> a joins
  a: joined 2 by range, leads a b
  b: joined 2 by range, follows a
> commit
> show
  CompletingRebalance 2: a b, led by a
> b syncs
> a syncs a=late b=later
  log: 2: a=late b=later
> commit
  a: does 'late'
  b: does 'later'
""")
