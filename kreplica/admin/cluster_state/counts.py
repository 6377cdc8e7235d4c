"""Counts partitions and replicas; callers share the result until the metadata changes.

Charts poll every second, and counting 10,000 partitions takes a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kreplica.admin.cluster_state.published_metadata import (
    PublishedMetadata,
    PublishedPartition,
    PublishedTopic,
    is_offline,
    is_under_replicated,
)
from kreplica.cluster.eligible_leaders import required_isr_size
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice

KEPT_SECONDS_MAX = 5.0
"""Maximum age of counts, because changes of ``min.insync.replicas`` are not part of the metadata."""


@dataclass(slots=True)
class BrokerCounts:
    """Counts of one broker: partitions that it leads and replicas that it holds."""

    leaders: int = 0
    replicas: int = 0
    under_replicated_leaders: int = 0


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """Counts of one topic.

    :param replication_factor: number of replicas of the partition that has the most.
    """

    partitions: int
    replication_factor: int
    offline_partitions: int
    under_replicated_partitions: int
    under_min_isr_partitions: int = 0


@dataclass(slots=True)
class Counts:
    """Counts of the cluster.

    A partition without a leader is counted only as offline; likewise, the leaders' metrics do not count it as
    under-replicated.

    :ivar offline: partitions without a leader, sorted.
    :ivar under_replicated: partitions with a leader and with replicas out of sync.
    :ivar under_min_isr: partitions with a leader that rejects ``acks=all`` writes.
    """

    partitions: int = 0
    offline: list[TopicPartition] = field(default_factory=list)
    under_replicated: list[TopicPartition] = field(default_factory=list)
    under_min_isr: list[TopicPartition] = field(default_factory=list)
    brokers: dict[int, BrokerCounts] = field(default_factory=dict)
    topics: dict[str, TopicCounts] = field(default_factory=dict)


class CachedCounts:
    """Counts derived from the metadata, cached until the metadata changes.

    :param min_insync_replicas: returns ``min.insync.replicas`` of a topic.
    """

    def __init__(
        self, reactor: Reactor, published: PublishedMetadata, min_insync_replicas: Callable[[str], int]
    ) -> None:
        self._reactor = reactor
        self._published = published
        self._min_insync_replicas = min_insync_replicas
        self._kept: Counts | None = None
        self._kept_since_s = 0.0
        self._is_old = False
        """True if the metadata changed after counting started."""
        self._is_counting = False
        self._waiting: list[Deferred[Counts]] = []
        published.on_change(self._invalidate)

    def _invalidate(self) -> None:
        self._kept, self._is_old = None, True

    async def current(self) -> Counts:
        """Return the counts of the current metadata; wait for the count in progress, if any."""
        counts = self._kept
        if counts is not None and self._reactor.seconds() - self._kept_since_s < KEPT_SECONDS_MAX:
            return counts
        # A cancelled caller stops waiting; the count continues for the others.
        waiter: Deferred[Counts] = Deferred()
        self._waiting.append(waiter)
        if not self._is_counting:
            self._is_counting = True
            Deferred.fromCoroutine(self._count()).addErrback(self._failed)
        return await waiter

    async def _count(self) -> None:
        counts, started_s, self._is_old = Counts(), self._reactor.seconds(), False
        time_slice = TimeSlice(self._reactor)
        for name in sorted(self._published.topics):
            topic = self._published.topics.get(name)  # None if it was deleted in the meantime
            if topic is not None:
                _add(counts, topic, self._min_insync_replicas(name))
            if time_slice.is_over:
                await time_slice.next()
        self._is_counting = False
        self._kept, self._kept_since_s = None if self._is_old else counts, started_s
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.called:
                waiter.callback(counts)

    def _failed(self, failure: Failure) -> None:
        self._is_counting = False
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.called:
                waiter.errback(failure)


def counts_of(topic: PublishedTopic, in_sync_needed: int) -> TopicCounts:
    """Return the counts of one topic.

    :param in_sync_needed: ``min.insync.replicas`` of the topic.
    """
    partitions = topic.partitions.values()
    return TopicCounts(
        len(partitions),
        max(len(partition.replicas) for partition in partitions),
        sum(map(is_offline, partitions)),
        sum(map(is_under_replicated, partitions)),
        sum(_is_under_min_isr(each, in_sync_needed) for each in partitions),
    )


def _is_under_min_isr(partition: PublishedPartition, in_sync_needed: int) -> bool:
    """Return True if the partition's leader rejects ``acks=all`` writes."""
    required = required_isr_size(in_sync_needed, len(partition.replicas))
    return is_under_replicated(partition) and len(partition.isr) < required


def _add(counts: Counts, topic: PublishedTopic, in_sync_needed: int) -> None:
    of_topic = counts.topics[topic.name] = counts_of(topic, in_sync_needed)
    counts.partitions += of_topic.partitions
    if of_topic.offline_partitions or of_topic.under_replicated_partitions:
        numbers = sorted(topic.partitions.items())
        counts.offline += [TopicPartition(topic.name, n) for n, each in numbers if is_offline(each)]
        counts.under_replicated += [TopicPartition(topic.name, n) for n, each in numbers if is_under_replicated(each)]
        counts.under_min_isr += [
            TopicPartition(topic.name, n) for n, each in numbers if _is_under_min_isr(each, in_sync_needed)
        ]
    brokers = counts.brokers
    for partition in topic.partitions.values():
        for replica in partition.replicas:
            brokers.setdefault(replica, BrokerCounts()).replicas += 1
        if not is_offline(partition):
            leader = brokers.setdefault(partition.leader, BrokerCounts())
            leader.leaders += 1
            leader.under_replicated_leaders += is_under_replicated(partition)
