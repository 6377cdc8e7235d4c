"""Replication throttles for replicas that are being moved."""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.model import TopicPartition
from kreplica.replication.throttle import UNLIMITED, ReplicationThrottle, TokenBucket


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Topic:
    leader_throttled_replicas: frozenset[str] = frozenset()
    follower_throttled_replicas: frozenset[str] = frozenset()


def test_average_rate() -> None:
    """A response may exceed the available tokens; the debt delays later responses."""
    clock, rate = Clock(), 1000
    bucket = TokenBucket(clock, lambda: rate)
    passed = 0
    for _ in range(2000):
        if not bucket.is_exhausted:
            bucket.use(700)
            passed += 700
        clock.now_s += 0.01
    assert rate * 20 <= passed <= rate * 22, "20 s, and the second saved before"


def test_unused_tokens_are_kept_for_a_second() -> None:
    clock = Clock()
    bucket = TokenBucket(clock, lambda: 1000)
    clock.now_s += 3600
    assert not bucket.is_exhausted
    bucket.use(1000)
    assert bucket.is_exhausted
    assert 0 < bucket.seconds_until_free < 0.01
    bucket.use(500)
    clock.now_s += bucket.seconds_until_free
    assert not bucket.is_exhausted


def test_changed_rate_takes_effect_at_once() -> None:
    """Without a limit, nothing is counted; a limit of 0 blocks everything."""
    clock, rate = Clock(), [UNLIMITED]
    bucket = TokenBucket(clock, lambda: rate[0])
    bucket.use(10**12)
    assert not bucket.is_limited
    assert not bucket.is_exhausted
    rate[0] = 0
    assert bucket.is_exhausted
    assert bucket.seconds_until_free == 1.0
    rate[0] = 10
    clock.now_s += 1
    assert not bucket.is_exhausted


def test_only_configured_replicas_are_throttled() -> None:
    """``*`` selects all replicas, ``partition:broker`` selects one; without a rate, no replica is throttled."""
    topics = {
        "all": Topic(frozenset({"*"}), frozenset({"*"})),
        "some": Topic(frozenset({"0:1", "1:2"}), frozenset({"2:1"})),
        "none": Topic(),
    }
    rates = [5, 5]
    throttle = ReplicationThrottle(Clock(), 1, lambda: rates[0], lambda: rates[1], topics.__getitem__)

    def named(is_throttled) -> set[tuple[str, int]]:
        return {(t, p) for t in topics for p in range(3) if is_throttled(TopicPartition(t, p))}

    everywhere = {("all", 0), ("all", 1), ("all", 2)}
    assert named(throttle.throttles_as_leader) == everywhere | {("some", 0)}
    assert named(throttle.throttles_as_follower) == everywhere | {("some", 2)}
    rates[0] = UNLIMITED
    assert named(throttle.throttles_as_leader) == set()
    assert named(throttle.throttles_as_follower) == everywhere | {("some", 2)}


def test_plans_throttle_added_replicas_only() -> None:
    rate = [1000]
    throttle = ReplicationThrottle(Clock(), 1, lambda: UNLIMITED, lambda: UNLIMITED, lambda _: Topic(), lambda: rate[0])
    key = TopicPartition("t", 0)
    assert throttle.leader_throttles(key, 4, (4, 5)) == [throttle.plan_leader]
    assert throttle.leader_throttles(key, 3, (4, 5)) == []
    assert throttle.follower_throttles(key, (1,)) == [throttle.plan_follower]
    assert throttle.follower_throttles(key, (4,)) == []
    rate[0] = UNLIMITED
    assert throttle.leader_throttles(key, 4, (4, 5)) == []
    assert throttle.follower_throttles(key, (1,)) == []


def test_both_throttles_apply() -> None:
    """The configured throttle still applies to the replicas that it lists."""
    throttle = ReplicationThrottle(Clock(), 1, lambda: 5, lambda: 5, lambda _: Topic(frozenset("*")), lambda: 1000)
    assert throttle.leader_throttles(TopicPartition("t", 0), 4, (4,)) == [throttle.leader, throttle.plan_leader]
    assert throttle.follower_throttles(TopicPartition("t", 0), (1,)) == [throttle.plan_follower]
