"""Heartbeat responses to members of KIP-848 groups."""

from __future__ import annotations

from consumer_scene import check_transcript


def test_second_member() -> None:
    """The second member gets its half once the first has confirmed the revocation."""
    check_transcript("""
> a joins t
  a: 1, owns t0 t1 t2 t3
> a beats
  a: 1
> b joins t
  b: 2, owns nothing
> a beats
  a: 1, owns t0 t1
> show
  Reconciling 2, target of 2
  a: 1 UNREVOKED_PARTITIONS, t0 t1, to revoke t2 t3; target t0 t1
  b: 2 UNRELEASED_PARTITIONS, nothing; target t2 t3
> b beats
  b: 2
> a beats quietly
  a: 1
> b beats
  b: 2
> a beats
  a: 2
> b beats
  b: 2, owns t2 t3
> show
  Stable 2, target of 2
  a: 2 STABLE, t0 t1; target t0 t1
  b: 2 STABLE, t2 t3; target t2 t3
""")


def test_assignment_is_sent_after_changes() -> None:
    """The assignment is sent when it changes, on joining, and in response to full heartbeats."""
    check_transcript("""
> a joins t
  a: 1, owns t0 t1 t2 t3
> a beats
  a: 1
> a beats quietly
  a: 1
> a beats fully
  a: 1, owns t0 t1 t2 t3
> a joins
  a: 1, owns t0 t1 t2 t3
""")


def test_members_leave() -> None:
    """Partitions of a leaving member are reassigned with the next heartbeats of the others."""
    check_transcript("""
> a joins t
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> a leaves
  a: -1
> show
  Assigning 3, target of 2
  b: 2 UNRELEASED_PARTITIONS, nothing; target t2 t3
> b beats
  b: 3, owns t0 t1 t2 t3
> a beats 1
  a: UNKNOWN_MEMBER_ID
> b leaves
  b: -1
> show
  Empty 4, target of 3
> b leaves
  b: UNKNOWN_MEMBER_ID
> a joins
  a: 5, owns t0 t1 t2 t3
""")


def test_member_dies() -> None:
    """A member without requests for a session timeout is removed, and its later heartbeats are refused."""
    check_transcript("""
> a joins t
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> a beats
  a: 1, owns t0 t1
> a beats
  a: 2
> b beats
  b: 2, owns t2 t3
> wait 40
> a beats
  a: 2
> wait 4
> b commits
  b: allowed
> wait 1
> b commits
  b: UNKNOWN_MEMBER_ID
> a beats
  a: 3, owns t0 t1 t2 t3
> b beats
  b: UNKNOWN_MEMBER_ID
> b joins
  b: 4, owns nothing
""")


def test_member_that_does_not_revoke() -> None:
    """A member that does not revoke partitions is removed after its rebalance timeout."""
    check_transcript("""
> a joins t timeout=20
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> a stops revoking
> a beats
  a: 1, owns t0 t1
> wait 19
> a beats
  a: 1
> b beats
  b: 2
> wait 1
> b beats
  b: 3, owns t0 t1 t2 t3
> a beats
  a: UNKNOWN_MEMBER_ID
> a joins
  a: 4, owns nothing
""")


def test_member_that_revokes_late() -> None:
    """A revocation within the rebalance timeout stops the timer."""
    check_transcript("""
> a joins t timeout=20
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> a stops revoking
> a beats
  a: 1, owns t0 t1
> wait 19
> a revokes
> a beats
  a: 2
> wait 19
> a beats
  a: 2
> b beats
  b: 2, owns t2 t3
> a commits
  a: allowed
""")


def test_target_changes_during_a_revocation() -> None:
    """If the target changes during a revocation, the next response asks for all partitions to revoke."""
    check_transcript("""
> a joins t
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> a stops revoking
> a beats
  a: 1, owns t0 t1
> c joins t
  c: 3, owns nothing
> a revokes
> a beats
  a: 1, owns t0
> show
  Reconciling 3, target of 3
  a: 1 UNREVOKED_PARTITIONS, t0, to revoke t1; target t0
  b: 2 UNRELEASED_PARTITIONS, nothing; target t2 t3
  c: 3 UNRELEASED_PARTITIONS, nothing; target t1
> b beats
  b: 3, owns t2 t3
> c beats
  c: 3
> a beats
  a: 3
> c beats
  c: 3, owns t1
""")


def test_lost_response() -> None:
    """A heartbeat with the previous epoch is accepted once, if it reports no partition outside the assignment."""
    check_transcript("""
> a joins t
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> a beats
  a: 1, owns t0 t1
> a beats
  a: 2
> a beats 1
  a: 2, owns t0 t1
> a beats 1 quietly
  a: FENCED_MEMBER_EPOCH
> a joins
  a: 2, owns t0 t1
> c joins t
  c: 3, owns nothing
> a beats
  a: 2, owns t0
> a beats
  a: 3
> a beats 1
  a: FENCED_MEMBER_EPOCH
> a joins
  a: 3, owns t0
> a beats 4
  a: FENCED_MEMBER_EPOCH
""")


def test_previous_epoch_with_reassigned_partitions() -> None:
    """A heartbeat with the previous epoch and a partition that another member may own is fenced."""
    check_transcript("""
> a joins t
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> a beats
  a: 1, owns t0 t1
> a beats
  a: 2
> b beats
  b: 2, owns t2 t3
> a owns t0 t2
> a beats 1
  a: FENCED_MEMBER_EPOCH
""")


def test_offset_commits_and_fetches() -> None:
    """Commits and fetches need the current member epoch; a group without members accepts any commit."""
    check_transcript("""
> a joins t
  a: 1, owns t0 t1 t2 t3
> a commits
  a: allowed
> a fetches
  a: allowed
> b joins t
  b: 2, owns nothing
> a beats
  a: 1, owns t0 t1
> a beats
  a: 2
> a commits 1
  a: STALE_MEMBER_EPOCH
> a fetches 1
  a: STALE_MEMBER_EPOCH
> a commits
  a: allowed
> c commits -1
  c: UNKNOWN_MEMBER_ID
> a leaves
  a: -1
> b leaves
  b: -1
> c commits -1
  c: allowed
> c fetches 2
  c: UNKNOWN_MEMBER_ID
""")


def test_changed_topics() -> None:
    """Created, extended, deleted and recreated topics reach members with their next heartbeats."""
    check_transcript("""
> a joins t u
  a: 1, owns t0 t1 t2 t3
> topic u 2
> a beats
  a: 2, owns t0 t1 t2 t3 u0 u1
> topic t 5
> a beats
  a: 3, owns t0 t1 t2 t3 t4 u0 u1
> topic t 3
> a beats
  a: 3, owns t0 t1 t2 u0 u1
> a beats
  a: 4
> topic u 0
> a beats
  a: 4, owns t0 t1 t2
> show
  Reconciling 5, target of 5
  a: 4 UNREVOKED_PARTITIONS, t0 t1 t2, to revoke ?0 ?1; target t0 t1 t2
> topic u 1
> a beats
  a: 6, owns t0 t1 t2 u0
> topic v 9
> a beats
  a: 6
""")


def test_changed_subscriptions() -> None:
    """A member that changes its subscription first revokes old partitions."""
    check_transcript("""
> topic u 2
> a joins t
  a: 1, owns t0 t1 t2 t3
> a subscribes u
  a: 1, owns nothing
> a beats
  a: 2, owns u0 u1
> a subscribes u t
  a: 3, owns t0 t1 t2 t3 u0 u1
""")


def test_regular_expressions() -> None:
    """The coordinator resolves regular expressions and follows changes of topics."""
    check_transcript("""
> topic x1 1
> a joins t ~x.*
  a: 1, owns t0 t1 t2 t3 x10
> topic x2 1
> topic y 1
> a beats
  a: 2, owns t0 t1 t2 t3 x10 x20
> b joins ~x[12]|y
  b: 3, owns y0
> a beats
  a: 2, owns t0 t1 t2 t3
> a beats
  a: 3
> b beats
  b: 3, owns x10 x20 y0
> topic x1 0
> topic y 0
> b beats
  b: 3, owns x20
> b subscribes t ~
  b: 3, owns nothing
> a beats
  a: 3, owns t0 t1
> b beats
  b: 5
> c joins ~x(
  c: INVALID_REGULAR_EXPRESSION
> b leaves
  b: -1
> a leaves
  a: -1
> show
  Empty 7, target of 5
""")


def test_assignors() -> None:
    """The assignor that most members prefer is used; the default is the first configured one."""
    check_transcript("""
> topic u 4
> a joins t u assignor=range
  a: 1, owns t0 t1 t2 t3 u0 u1 u2 u3
> b joins t u assignor=range
  b: 2, owns nothing
> a beats
  a: 1, owns t0 t1 u0 u1
> a beats
  a: 2
> b beats
  b: 2, owns t2 t3 u2 u3
> c joins t u
  c: 3, owns nothing
> show
  Reconciling 3, target of 3
  a: 2 STABLE, t0 t1 u0 u1; target t0 t1 u0 u1
  b: 2 STABLE, t2 t3 u2 u3; target t2 u2
  c: 3 UNRELEASED_PARTITIONS, nothing; target t3 u3
> a subscribes t u assignor=uniform
  a: 3, owns t0 t1 u0 u1
> c subscribes t u assignor=uniform
  c: 3, owns nothing
> d joins t
  d: 4, owns nothing
> show
  Reconciling 4, target of 4
  a: 3 STABLE, t0 t1 u0 u1; target u0 u1
  b: 2 STABLE, t2 t3 u2 u3; target t2 u2
  c: 3 UNRELEASED_PARTITIONS, nothing; target t3 u3
  d: 4 UNRELEASED_PARTITIONS, nothing; target t0 t1
> e joins t assignor=sticky
  e: UNSUPPORTED_ASSIGNOR
""")


def test_full_group() -> None:
    """A full group refuses new members; existing ones may rejoin."""
    check_transcript(
        """
> a joins t
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: GROUP_MAX_SIZE_REACHED
> a joins
  a: 1, owns t0 t1 t2 t3
> a leaves
  a: -1
> b joins
  b: 3, owns t0 t1 t2 t3
""",
        size_max=1,
    )


def test_missing_group() -> None:
    """Only a joining member creates a group."""
    check_transcript("""
> a beats 3
  a: GROUP_ID_NOT_FOUND
> a leaves
  a: GROUP_ID_NOT_FOUND
> a joins t
  a: 1, owns t0 t1 t2 t3
> b beats 3
  b: UNKNOWN_MEMBER_ID
""")
