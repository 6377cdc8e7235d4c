"""Static members of KIP-848 groups rejoin with their instance IDs without moving partitions."""

from __future__ import annotations

from consumer_scene import check_transcript


def test_static_member_restarts() -> None:
    """Partitions of a member that leaves temporarily are kept for its instance ID."""
    check_transcript("""
> a joins t static=one
  a: 1, owns t0 t1 t2 t3
> b joins t static=two
  b: 2, owns nothing
> a beats
  a: 1, owns t0 t1
> a beats
  a: 2
> b beats
  b: 2, owns t2 t3
> a leaves for-a-while
  a: -2
> a leaves for-a-while
  a: -2
> show
  Reconciling 2, target of 2
  a: -2 STABLE, t0 t1; target t0 t1
  b: 2 STABLE, t2 t3; target t2 t3
> b beats
  b: 2
> a2 joins t static=one
  a2: 2, owns t0 t1
> show
  Stable 2, target of 2
  b: 2 STABLE, t2 t3; target t2 t3
  a2: 2 STABLE, t0 t1; target t0 t1
> a beats 2
  a: FENCED_INSTANCE_ID
> a commits 2
  a: UNKNOWN_MEMBER_ID
> a leaves
  a: FENCED_INSTANCE_ID
> a leaves for-a-while
  a: FENCED_INSTANCE_ID
> a2 commits
  a2: allowed
""")


def test_restart_with_the_same_member_id() -> None:
    check_transcript("""
> a joins t static=one
  a: 1, owns t0 t1 t2 t3
> a leaves for-a-while
  a: -2
> a beats 1
  a: FENCED_MEMBER_EPOCH
> a joins
  a: 1, owns t0 t1 t2 t3
> a beats
  a: 1
""")


def test_member_that_has_not_left_is_not_replaced() -> None:
    """A static member can be replaced once it leaves or its session expires."""
    check_transcript("""
> a joins t static=one
  a: 1, owns t0 t1 t2 t3
> b joins t static=one
  b: UNRELEASED_INSTANCE_ID
> wait 44
> b joins
  b: UNRELEASED_INSTANCE_ID
> wait 1
> b joins
  b: 3, owns t0 t1 t2 t3
> a beats 1
  a: FENCED_INSTANCE_ID
""")


def test_member_that_does_not_return() -> None:
    """Partitions of an absent member are reassigned after its session timeout, which leaving does not extend."""
    check_transcript("""
> a joins t static=one
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> a beats
  a: 1, owns t0 t1
> a beats
  a: 2
> wait 20
> b beats
  b: 2, owns t2 t3
> a leaves for-a-while
  a: -2
> wait 24
> b beats
  b: 2
> wait 1
> b beats
  b: 3, owns t0 t1 t2 t3
""")


def test_member_leaves_permanently() -> None:
    """The partitions of a static member that leaves permanently are reassigned immediately."""
    check_transcript("""
> a joins t static=one
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> a leaves
  a: -1
> b beats
  b: 3, owns t0 t1 t2 t3
> a2 joins t static=one
  a2: 4, owns nothing
""")


def test_member_leaves_while_it_revokes() -> None:
    """A temporary leave releases the partitions pending revocation and keeps the assignment."""
    check_transcript("""
> a joins t static=one
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> a beats
  a: 1, owns t0 t1
> a leaves for-a-while
  a: -2
> b beats
  b: 2, owns t2 t3
> a2 joins t static=one
  a2: 2, owns t0 t1
""")


def test_member_returns_with_another_subscription() -> None:
    """A static member that returns with another subscription gets a new assignment."""
    check_transcript("""
> topic u 2
> a joins t static=one
  a: 1, owns t0 t1 t2 t3
> a leaves for-a-while
  a: -2
> a2 joins t u static=one
  a2: 2, owns t0 t1 t2 t3 u0 u1
""")


def test_target_changes_while_a_member_is_away() -> None:
    """Partitions of an absent static member are not assigned to others until it returns."""
    check_transcript("""
> a joins t static=one
  a: 1, owns t0 t1 t2 t3
> a leaves for-a-while
  a: -2
> b joins t
  b: 2, owns nothing
> b beats
  b: 2
> a2 joins t static=one
  a2: 2, owns t0 t1
> b beats
  b: 2, owns t2 t3
""")


def test_instance_id_of_another_member_is_refused() -> None:
    check_transcript("""
> a joins t static=one
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> c beats 1
  c: UNKNOWN_MEMBER_ID
> c leaves for-a-while
  c: INVALID_REQUEST
""")
