"""How fast replicas that move may be copied (KIP-73): a rate for what a broker sends as leader, one for what it takes.

Only replicas that the topic's settings name are throttled, and only while they are not in sync: a throttle must never
push a replica out of the in-sync set.
"""

from __future__ import annotations

from collections.abc import Callable
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
    """Both throttles of one broker.

    :param leader_rate: ``leader.replication.throttled.rate`` as it is now, in bytes a second.
    :param follower_rate: ``follower.replication.throttled.rate`` as it is now.
    :param topic: a topic's settings as they are now.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        broker_id: int,
        leader_rate: Callable[[], int],
        follower_rate: Callable[[], int],
        topic: Callable[[str], ThrottledTopic],
    ) -> None:
        self.leader = TokenBucket(seconds, leader_rate)
        self.follower = TokenBucket(seconds, follower_rate)
        self._broker_id = broker_id
        self._topic = topic

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


def _names(replicas: frozenset[str], partition: int, broker_id: int) -> bool:
    return bool(replicas) and (EVERY_REPLICA in replicas or f"{partition}:{broker_id}" in replicas)
