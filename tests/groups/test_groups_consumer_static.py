"""Static members of KIP-848 groups rejoin with their instance ids without moving partitions."""

from __future__ import annotations

from consumer_scene import tells


def test_a_restart() -> None:
    """Partitions of a member that leaves temporarily are kept for its instance id."""
    tells("""
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
  a: -2 STABLE, t0 t1; to have t0 t1
  b: 2 STABLE, t2 t3; to have t2 t3
> b beats
  b: 2
> a2 joins t static=one
  a2: 2, owns t0 t1
> show
  Stable 2, target of 2
  b: 2 STABLE, t2 t3; to have t2 t3
  a2: 2 STABLE, t0 t1; to have t0 t1
> a beats 2
  a: FENCED_INSTANCE_ID
> a commits 2
  a: UNKNOWN_MEMBER_ID
> a leaves
  a: FENCED_INSTANCE_ID
> a leaves for-a-while
  a: FENCED_INSTANCE_ID
> a2 commits
  a2: may
""")


def test_a_restart_under_the_same_member_id() -> None:
    """A static member may rejoin with its old member id."""
    tells("""
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


def test_one_that_has_not_left() -> None:
    """A static member cannot be replaced until it leaves or its session expires."""
    tells("""
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


def test_one_that_does_not_come_back() -> None:
    """Its partitions are reassigned after its session, which leaving does not extend."""
    tells("""
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


def test_one_that_leaves_for_good() -> None:
    """A final leave frees its partitions immediately."""
    tells("""
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


def test_one_that_leaves_while_it_gives_up() -> None:
    """A temporary leave frees pending revocations and keeps the assignment."""
    tells("""
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


def test_one_that_comes_back_with_another_subscription() -> None:
    """A new subscription changes the group as for any member."""
    tells("""
> topic u 2
> a joins t static=one
  a: 1, owns t0 t1 t2 t3
> a leaves for-a-while
  a: -2
> a2 joins t u static=one
  a2: 2, owns t0 t1 t2 t3 u0 u1
""")


def test_a_target_that_changes_meanwhile() -> None:
    """Others wait for partitions of a static member that is away."""
    tells("""
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


def test_strangers() -> None:
    """Only the holder of an instance id can use it."""
    tells("""
> a joins t static=one
  a: 1, owns t0 t1 t2 t3
> b joins t
  b: 2, owns nothing
> c beats 1
  c: UNKNOWN_MEMBER_ID
> c leaves for-a-while
  c: INVALID_REQUEST
""")
