"""How fast replicas that move may be copied: a rate for what a broker sends as leader, one for what it takes.

There are two throttles, and a replica may be under both: that of the settings (KIP-73), for replicas that the topic's
settings name, and that of plans, for replicas that are being added by a reassignment.  Neither is for replicas that are
in sync: a throttle must never push a replica out of the in-sync set.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from kreplica.model import TopicPartition

UNLIMITED = 2**63 - 1
BURST_SECONDS = 1.0
"""What was not used of the rate may be used later, but no more than for so long."""

EVERY_REPLICA = "*"


class ThrottledTopic(Protocol):
    """What a topic's settings say of throttled replicas: ``*``, or ``partition:broker`` each."""

    @property
    def leader_throttled_replicas(self) -> frozenset[str]: ...

    @property
    def follower_throttled_replicas(self) -> frozenset[str]: ...


class TokenBucket:
    """Bytes that may pass, so many a second on average.

    :param seconds: a clock that never goes back.
    :param rate: bytes a second as it is now; ``UNLIMITED`` for none.
    """

    def __init__(self, seconds: Callable[[], float], rate: Callable[[], int]) -> None:
        self._seconds = seconds
        self._rate = rate
        self._tokens = 0.0
        self._filled_s = seconds() - BURST_SECONDS

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return self._rate() < UNLIMITED

    @property
    def used_up(self) -> bool:
        """Whether nothing may pass now.

        An answer may take more than there is, since its size is not known before; the debt is waited for.
        """
        if not self.limited:
            return False
        self._fill()
        return self._tokens <= 0

    @property
    def seconds_until_free(self) -> float:
        """How long until something may pass; 0 where it may now."""
        if not self.used_up:
            return 0.0
        rate = self._rate()
        return (1 - self._tokens) / rate if rate > 0 else BURST_SECONDS

    def use(self, size: int) -> None:
        """So many bytes have passed."""
        if self.limited:
            self._fill()
            self._tokens -= size

    def _fill(self) -> None:
        now_s, rate = self._seconds(), self._rate()
        self._tokens = min(self._tokens + (now_s - self._filled_s) * rate, rate * BURST_SECONDS)
        self._filled_s = now_s


class ReplicationThrottle:
    """The throttles of one broker.

    :param leader_rate: ``leader.replication.throttled.rate`` as it is now, in bytes a second.
    :param follower_rate: ``follower.replication.throttled.rate`` as it is now.
    :param topic: a topic's settings as they are now.
    :param plan_rate: that of plans as it is now; it holds for each direction by itself.
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

    def leading(self, key: TopicPartition, follower: int, adding: Collection[int]) -> Sequence[TokenBucket]:
        """What this broker, as the leader, sends a follower under.

        :param follower: one that is not in sync.
        :param adding: the partition's replicas that are being added.
        """
        found = [self.leader] if self.leads_throttled(key) else []
        if may_throttle_for_plans(follower, adding) and self.plan_leader.limited:
            found.append(self.plan_leader)
        return found

    def following(self, key: TopicPartition, adding: Collection[int]) -> Sequence[TokenBucket]:
        """What this broker, as a follower that is not in sync, copies under."""
        found = [self.follower] if self.follows_throttled(key) else []
        if may_throttle_for_plans(self._broker_id, adding) and self.plan_follower.limited:
            found.append(self.plan_follower)
        return found

    def leads_throttled(self, key: TopicPartition) -> bool:
        """Whether this broker, as the leader, throttles those who copy the partition."""
        return self.leader.limited and _names(
            self._topic(key.topic).leader_throttled_replicas, key.partition, self._broker_id
        )

    def follows_throttled(self, key: TopicPartition) -> bool:
        """Whether this broker, as a follower, throttles its copying of the partition."""
        return self.follower.limited and _names(
            self._topic(key.topic).follower_throttled_replicas, key.partition, self._broker_id
        )


def may_throttle_for_plans(replica: int, adding: Collection[int]) -> bool:
    """Whether the throttle of plans is for a replica that is not in sync: only for those that are being added."""
    return replica in adding


def _names(replicas: frozenset[str], partition: int, broker_id: int) -> bool:
    return bool(replicas) and (EVERY_REPLICA in replicas or f"{partition}:{broker_id}" in replicas)
