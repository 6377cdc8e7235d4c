"""Counts over all partitions, shared by concurrent requests."""

from __future__ import annotations

from uuid import UUID

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.admin.cluster_state.counts import KEPT_SECONDS_MAX, BrokerCounts, CachedCounts, TopicCounts
from kreplica.model import TopicPartition
from kreplica.server.metadata.metadata_cache import MetadataCache


class SlowClock(Clock):
    """A clock that advances with each call, so that long loops yield to the reactor."""

    step_s = 0.0

    def seconds(self):
        self.rightNow += self.step_s
        return self.rightNow


def update(*topics):
    """Return a metadata update.

    :param topics: name, then (leader, replicas, isr) of each partition.
    """
    states = [
        {
            "topic_name": name,
            "topic_id": UUID(int=1),
            "partition_states": [
                {"partition_index": n, "leader": leader, "leader_epoch": 0, "replicas": replicas, "isr": isr}
                for n, (leader, replicas, isr) in enumerate(partitions)
            ],
        }
        for name, *partitions in topics
    ]
    return {"controller_id": 1, "live_brokers": [], "topic_states": states}


@pytest.fixture
def clock():
    return SlowClock()


@pytest.fixture
def metadata(clock):
    cache = MetadataCache(clock)
    cache.update(update(("b", (1, [1, 2], [1]), (-1, [2], [2])), ("a", (2, [2, 1, 3], [2, 1, 3]))))
    return cache


@pytest.fixture
def settings_reads():
    return []


@pytest.fixture
def cached_counts(clock, metadata, settings_reads):
    return CachedCounts(clock, metadata, lambda topic: settings_reads.append(topic) or 2)


def count_now(cached_counts):
    return Deferred.fromCoroutine(cached_counts.current())


def test_counts(cached_counts):
    """Each broker, topic and partition is counted once per category."""
    counts = count_now(cached_counts).result
    assert counts.partitions == 3
    assert counts.topics == {"a": TopicCounts(1, 3, 0, 0, 0), "b": TopicCounts(2, 2, 1, 1, 1)}
    assert counts.offline == [TopicPartition("b", 1)]
    assert counts.under_replicated == [TopicPartition("b", 0)]
    assert counts.under_min_isr == [TopicPartition("b", 0)]
    assert counts.brokers == {1: BrokerCounts(1, 2, 1), 2: BrokerCounts(1, 3, 0), 3: BrokerCounts(0, 1, 0)}


def test_topic_with_fewer_replicas_than_min_insync_replicas(metadata, cached_counts):
    """A partition whose replicas are all in sync accepts records, even if it has fewer than min.insync.replicas."""
    metadata.update(update(("single", (1, [1], [1]), (-1, [2], []))))
    assert count_now(cached_counts).result.under_min_isr == [TopicPartition("b", 0)], (
        "a partition without a leader is not listed"
    )


def test_counts_are_cached(cached_counts, clock, metadata, settings_reads):
    """Counts are reused until a change or a timeout."""
    first = count_now(cached_counts).result
    assert count_now(cached_counts).result is first
    assert settings_reads == ["a", "b"]
    metadata.update(update(("c", (1, [1], [1]))))
    second = count_now(cached_counts).result
    assert sorted(second.topics) == ["a", "b", "c"]
    clock.advance(KEPT_SECONDS_MAX)
    assert count_now(cached_counts).result is not second


def test_concurrent_requests_share_a_count(cached_counts, clock, metadata):
    """Concurrent requests share one count; cancelling one does not affect the others."""
    clock.step_s = 0.006
    first, second, third = count_now(cached_counts), count_now(cached_counts), count_now(cached_counts)
    assert not first.called
    second.addErrback(lambda _: None)
    second.cancel()
    while not first.called:
        clock.advance(0)
    assert third.result is first.result


def test_change_during_a_count(cached_counts, clock, metadata):
    """If the metadata changes during a count, the result is not cached."""
    clock.step_s = 0.006
    first = count_now(cached_counts)
    metadata.update(update(("c", (1, [1], [1]))))
    while not first.called:
        clock.advance(0)
    clock.step_s = 0.0
    assert sorted(count_now(cached_counts).result.topics) == ["a", "b", "c"]


def test_failed_count(clock, metadata):
    """If a count fails, all waiting requests get the error, and the next request starts another count."""
    trouble = [KeyError("settings")]

    def needed(topic):
        if trouble:
            raise trouble.pop()
        return 1

    cached_counts = CachedCounts(clock, metadata, needed)
    failed = count_now(cached_counts)
    assert failed.result.check(KeyError)
    failed.addErrback(lambda _: None)
    assert count_now(cached_counts).result.partitions == 3
