"""Rebalances of classic groups: responses to members and records in the log."""

from __future__ import annotations

import pytest
from classic_scene import check_transcript

from kreplica.groups.classic import joining


def test_first_rebalance() -> None:
    """A client first receives a member ID, then leads a group of one and gets its assignment once it is committed."""
    check_transcript("""
> a joins
  a: MEMBER_ID_REQUIRED
> a joins
> wait 0
  a: joined 1 with range, leads a
> a syncs a=everything
  log: 1: a=everything
> commit
  a: assigned 'everything'
> a beats
  a: NONE
> show
  Stable 1: a, led by a
""")


def test_old_client_joins_with_one_request() -> None:
    """A client older than KIP-394 joins without requesting a member ID first."""
    check_transcript("""
> a joins version=3
> wait 0
  a: joined 1 with range, leads a
""")


def test_initial_delay_is_extended() -> None:
    """An empty group waits for more members, and each new member extends the delay."""
    check_transcript(
        """
> a joins version=0
> wait 2.9
> b joins version=0
> wait 2.9
> show
  PreparingRebalance 0: a b, led by a
> wait 0.3
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
""",
        initial_rebalance_delay_ms=3000,
    )


def test_negative_rebalance_timeout() -> None:
    """With a negative rebalance timeout, members that do not sync immediately are removed."""
    check_transcript(
        """
> a joins version=0 rebalance=-1
> wait 0
  a: joined 1 with range, leads a
  log: 2: none
> a syncs a=0
  a: UNKNOWN_MEMBER_ID
> commit
> b joins version=0 rebalance=-1
> wait 0
  b: joined 3 with range, leads b
  log: 4: none
> b syncs b=0
  b: UNKNOWN_MEMBER_ID
> commit
> a beats
  a: UNKNOWN_MEMBER_ID
""",
        initial_rebalance_delay_ms=-1,
    )


def test_initial_delay_is_limited() -> None:
    """The initial delay never exceeds the rebalance timeout, however many members join."""
    check_transcript(
        """
> a joins version=0 rebalance=5000
> wait 2
> b joins version=0 rebalance=5000
> wait 2
> c joins version=0 rebalance=5000
> wait 0.9
> show
  PreparingRebalance 0: a b c, led by a
> wait 0.2
  a: joined 1 with range, leads a b c
  b: joined 1 with range, follows a
  c: joined 1 with range, follows a
""",
        initial_rebalance_delay_ms=3000,
    )


def test_member_joins_a_stable_group() -> None:
    """When a member joins a stable group, heartbeat responses ask the others to rejoin."""
    check_transcript("""
> a joins version=0
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0,1
  log: 1: a=0,1
> commit
  a: assigned '0,1'
> b joins
  b: MEMBER_ID_REQUIRED
> b joins
> a beats
  a: REBALANCE_IN_PROGRESS
> a commits
  a: NONE
> a joins
  a: joined 2 with range, leads a b
  b: joined 2 with range, follows a
> b syncs
> a syncs a=0 b=1
  log: 2: a=0 b=1
> commit
  a: assigned '0'
  b: assigned '1'
> a beats
  a: NONE
> b beats
  b: NONE
""")


def test_member_leaves() -> None:
    """When a member leaves, the others share its partitions."""
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
> b leaves
  b: left, NONE
> b beats
  b: UNKNOWN_MEMBER_ID
> a beats
  a: REBALANCE_IN_PROGRESS
> a joins
  a: joined 2 with range, leads a
> a syncs a=0,1
  log: 2: a=0,1
> commit
  a: assigned '0,1'
""")


def test_leader_leaves() -> None:
    """When the leader leaves, another member becomes leader."""
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
> a leaves
  a: left, NONE
> b joins
  b: joined 2 with range, leads b
> b syncs b=0,1
  log: 2: b=0,1
> commit
  b: assigned '0,1'
> show
  Stable 2: b, led by b
""")


def test_last_member_leaves() -> None:
    """When its last member leaves, a group becomes empty and its new generation is written."""
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
> show
  Empty 2: none
> commit
> fail over
  Empty 2: none
""")


def test_follower_rejoins_a_stable_group() -> None:
    """A follower that rejoins unchanged gets the same response without a rebalance."""
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
> b joins
  b: joined 1 with range, follows a
> a beats
  a: NONE
> b syncs
  b: assigned '1'
""")


def test_leader_rejoins_a_stable_group() -> None:
    """A leader that rejoins starts a rebalance, because its assignment may be outdated."""
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
> b beats
  b: REBALANCE_IN_PROGRESS
> b joins
  a: joined 2 with range, leads a b
  b: joined 2 with range, follows a
""")


def test_follower_rejoins_with_other_metadata() -> None:
    check_transcript("""
> a joins version=0 protocols=range,sticky
> b joins version=0 protocols=range,sticky
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> b joins protocols=sticky,range
> a beats
  a: REBALANCE_IN_PROGRESS
> a joins protocols=sticky,range
  a: joined 2 with sticky, leads a b
  b: joined 2 with sticky, follows a
""")


def test_lost_join_group_response() -> None:
    """A member that missed its JoinGroup response gets it again before the assignment is complete."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> b joins
  b: joined 1 with range, follows a
> a joins
  a: joined 1 with range, leads a b
> show
  CompletingRebalance 1: a b, led by a
""")


def test_second_request_supersedes_the_first() -> None:
    """When a member repeats a pending request, the first one is answered with REBALANCE_IN_PROGRESS."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> b syncs
  b: REBALANCE_IN_PROGRESS
> commit
  a: assigned '0'
  b: assigned '1'
> a joins
> a joins
  a: REBALANCE_IN_PROGRESS
""")


def test_most_preferred_protocol_is_selected() -> None:
    """The protocol with the most votes is selected from those that all members support."""
    check_transcript("""
> a joins version=0 protocols=range,sticky,robin
> b joins version=0 protocols=robin,sticky
> c joins version=0 protocols=sticky,robin
> d joins version=0 protocols=sticky,robin
> e joins version=0 protocols=range
  e: INCONSISTENT_GROUP_PROTOCOL
> wait 0
  a: joined 1 with sticky, leads a b c d
  b: joined 1 with sticky, follows a
  c: joined 1 with sticky, follows a
  d: joined 1 with sticky, follows a
""")


def test_late_sync_group_restarts_the_session() -> None:
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
> b syncs
  b: assigned '1'
> wait 9
> a beats
  a: NONE
> b beats
  b: NONE
""")


def test_other_protocol_type_is_refused() -> None:
    """A member with another protocol type or without protocols is rejected; an empty group accepts any type."""
    check_transcript("""
> a joins version=0
> wait 0
  a: joined 1 with range, leads a
> b joins type=connect
  b: INCONSISTENT_GROUP_PROTOCOL
> c joins protocols=sticky
  c: INCONSISTENT_GROUP_PROTOCOL
> a leaves
  log: 2: none
  a: left, NONE
> commit
> d joins type=
  d: INCONSISTENT_GROUP_PROTOCOL
> b joins type=connect version=0
> wait 0
  b: joined 3 with range, leads b
""")


def test_requests_during_a_rebalance() -> None:
    """During a rebalance, commits are accepted; responses to Heartbeat and SyncGroup ask the member to rejoin."""
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
> b beats
  b: REBALANCE_IN_PROGRESS
> b commits
  b: NONE
> b syncs
  b: REBALANCE_IN_PROGRESS
> b joins
  a: joined 2 with range, leads a b
  b: joined 2 with range, follows a
> b commits
  b: REBALANCE_IN_PROGRESS
> b commits txn=1
  b: NONE
> b beats
  b: NONE
""")


def test_full_group_refuses_new_members() -> None:
    """A full group refuses new members until a member leaves."""
    check_transcript(
        """
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> c joins
  c: GROUP_MAX_SIZE_REACHED
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> c joins
  c: GROUP_MAX_SIZE_REACHED
> a leaves
  a: left, NONE
> c joins
  c: MEMBER_ID_REQUIRED
> c joins
> b joins
  b: joined 2 with range, leads b c
  c: joined 2 with range, follows b
""",
        size_max=2,
    )


def test_members_join_a_group_that_fills_up() -> None:
    """If more members join than the group may have, the first ones are accepted."""
    check_transcript(
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


def test_members_of_a_full_group_rejoin() -> None:
    """Members of a full group may rejoin, even twice in one rebalance."""
    check_transcript(
        """
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> b joins
  b: joined 1 with range, follows a
> a syncs a=0 b=1
  log: 1: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
> a joins
> a joins
  a: REBALANCE_IN_PROGRESS
> b joins
  a: joined 2 with range, leads a b
  b: joined 2 with range, follows a
""",
        size_max=2,
    )


def test_unused_member_id_is_refused_by_a_full_group() -> None:
    check_transcript(
        """
> a joins version=0
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: assigned '0'
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
  a: joined 2 with range, leads a b
  b: joined 2 with range, follows a
> c joins
  c: GROUP_MAX_SIZE_REACHED
""",
        size_max=2,
    )


def test_unused_member_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """New member IDs are refused while too many are unused; clients that have one may still join."""
    monkeypatch.setattr(joining, "PENDING_MAX", 2)
    check_transcript(
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
  b: joined 1 with range, leads b
> c joins as=
  c: MEMBER_ID_REQUIRED
""",
        initial_rebalance_delay_ms=5000,
    )


def test_unused_member_id_delays_a_rebalance_for_one_session() -> None:
    check_transcript("""
> a joins version=0
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0
  log: 1: a=0
> commit
  a: assigned '0'
> b joins session=6000
  b: MEMBER_ID_REQUIRED
> c joins version=0
> a joins
> show
  PreparingRebalance 1: a c, led by a
> wait 5.9
> wait 0.1
  a: joined 2 with range, leads a c
  c: joined 2 with range, follows a
""")


def test_client_leaves_with_an_unused_member_id() -> None:
    check_transcript("""
> b joins
  b: MEMBER_ID_REQUIRED
> show
  Empty 0: none
> b leaves
  b: left, NONE
> show
  no group
> b leaves
  b: left, UNKNOWN_MEMBER_ID
""")


def test_assignment_that_cannot_be_written() -> None:
    """If the assignment cannot be written, all members get an error and rejoin."""
    check_transcript("""
> a joins version=0
> b joins version=0
> wait 0
  a: joined 1 with range, leads a b
  b: joined 1 with range, follows a
> b syncs
> a syncs a=0 b=1
  log: 1: a=0 b=1
> reject COORDINATOR_NOT_AVAILABLE
  a: COORDINATOR_NOT_AVAILABLE
  b: COORDINATOR_NOT_AVAILABLE
> show
  PreparingRebalance 1: a b, led by a
> a beats
  a: REBALANCE_IN_PROGRESS
> a joins
> b joins
  a: joined 2 with range, leads a b
  b: joined 2 with range, follows a
> a syncs a=0 b=1
  log: 2: a=0 b=1
> b syncs
> commit
  a: assigned '0'
  b: assigned '1'
""")


def test_assignment_too_large_for_a_batch() -> None:
    """If the assignment does not fit into a batch, members get UNKNOWN_SERVER_ERROR."""
    check_transcript("""
> a joins version=0
> wait 0
  a: joined 1 with range, leads a
> a syncs a=0
  log: 1: a=0
> reject MESSAGE_TOO_LARGE
  a: UNKNOWN_SERVER_ERROR
""")


def test_late_commit_of_an_assignment() -> None:
    """An assignment committed after the next rebalance has started is ignored."""
    check_transcript("""
> a joins version=0
> wait 0
  a: joined 1 with range, leads a
> a syncs a=early
  log: 1: a=early
> b joins version=0
  a: REBALANCE_IN_PROGRESS
> a joins
  a: joined 2 with range, leads a b
  b: joined 2 with range, follows a
> commit
> show
  CompletingRebalance 2: a b, led by a
> b syncs
> a syncs a=late b=later
  log: 2: a=late b=later
> commit
  a: assigned 'late'
  b: assigned 'later'
""")
