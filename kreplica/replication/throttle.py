"""Replication throttles: byte rates for a broker's traffic as leader and as follower.

Two throttles exist and may both apply to a replica: the configured one (KIP-73), for replicas listed in the topic's
settings, and the one for plans, for replicas that a reassignment adds. Neither applies to in-sync replicas, because a
throttle must not push a replica out of the ISR.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from kreplica.model import TopicPartition

UNLIMITED = 2**63 - 1
BURST_SECONDS = 1.0
"""Maximum time for which unused tokens accumulate."""

EVERY_REPLICA = "*"


class ThrottledTopic(Protocol):
    """Throttled replicas in a topic's settings: ``*``, or a list of ``partition:broker``."""

    @property
    def leader_throttled_replicas(self) -> frozenset[str]: ...

    @property
    def follower_throttled_replicas(self) -> frozenset[str]: ...


class TokenBucket:
    """Token bucket that limits bytes per second.

    :param seconds: monotonic clock.
    :param rate: returns the current limit in bytes per second; ``UNLIMITED`` for none.
    """

    def __init__(self, seconds: Callable[[], float], rate: Callable[[], int]) -> None:
        self._seconds = seconds
        self._rate = rate
        self._tokens = 0.0
        self._filled_s = seconds() - BURST_SECONDS

    @property
    def is_limited(self) -> bool:
        return self._rate() < UNLIMITED

    @property
    def rate(self) -> int:
        """The current limit in bytes per second."""
        return self._rate()

    @property
    def is_exhausted(self) -> bool:
        """True if no bytes may be sent now.

        A response may exceed the available tokens, because its size is not known in advance; the balance is then
        negative.
        """
        if not self.is_limited:
            return False
        self._fill()
        return self._tokens <= 0

    @property
    def seconds_until_free(self) -> float:
        """Seconds until bytes may be sent; 0 if they may be sent now."""
        if not self.is_exhausted:
            return 0.0
        rate = self._rate()
        return (1 - self._tokens) / rate if rate > 0 else BURST_SECONDS

    def use(self, size: int) -> None:
        """Record bytes sent or received."""
        if self.is_limited:
            self._fill()
            self._tokens -= size

    def _fill(self) -> None:
        now_s, rate = self._seconds(), self._rate()
        self._tokens = min(self._tokens + (now_s - self._filled_s) * rate, rate * BURST_SECONDS)
        self._filled_s = now_s


class ReplicationThrottle:
    """Throttles of one broker.

    :param leader_rate: returns ``leader.replication.throttled.rate`` in bytes per second.
    :param follower_rate: returns ``follower.replication.throttled.rate`` in bytes per second.
    :param topic: returns the current settings of a topic.
    :param plan_rate: returns the rate for plans, applied to each direction separately.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        broker_id: int,
        leader_rate: Callable[[], int],
        follower_rate: Callable[[], int],
        topic: Callable[[str], ThrottledTopic],
        plan_rate: Callable[[], int] = lambda: UNLIMITED,
    ) -> None:
        self.leader = TokenBucket(seconds, leader_rate)
        self.follower = TokenBucket(seconds, follower_rate)
        self.plan_leader = TokenBucket(seconds, plan_rate)
        self.plan_follower = TokenBucket(seconds, plan_rate)
        self._broker_id = broker_id
        self._topic = topic

    def leader_throttles(self, key: TopicPartition, follower: int, adding: Collection[int]) -> Sequence[TokenBucket]:
        """Return the throttles for data that this leader sends to a follower.

        :param follower: ID of a follower that is not in sync.
        :param adding: IDs of the replicas that a reassignment adds.
        """
        found = [self.leader] if self.throttles_as_leader(key) else []
        if may_throttle_for_plans(follower, adding) and self.plan_leader.is_limited:
            found.append(self.plan_leader)
        return found

    def follower_throttles(self, key: TopicPartition, adding: Collection[int]) -> Sequence[TokenBucket]:
        """Return the throttles for data that this broker copies as an out-of-sync follower."""
        found = [self.follower] if self.throttles_as_follower(key) else []
        if may_throttle_for_plans(self._broker_id, adding) and self.plan_follower.is_limited:
            found.append(self.plan_follower)
        return found

    def throttles_as_leader(self, key: TopicPartition) -> bool:
        """True if this leader throttles the followers of the partition."""
        return self.leader.is_limited and _is_listed(
            self._topic(key.topic).leader_throttled_replicas, key.partition, self._broker_id
        )

    def throttles_as_follower(self, key: TopicPartition) -> bool:
        """True if this follower throttles its fetches of the partition."""
        return self.follower.is_limited and _is_listed(
            self._topic(key.topic).follower_throttled_replicas, key.partition, self._broker_id
        )


def may_throttle_for_plans(replica: int, adding: Collection[int]) -> bool:
    """True if a reassignment adds this replica."""
    return replica in adding


def _is_listed(replicas: frozenset[str], partition: int, broker_id: int) -> bool:
    return bool(replicas) and (EVERY_REPLICA in replicas or f"{partition}:{broker_id}" in replicas)
