"""Metrics of the groups that this broker coordinates, with the names of kafka_exporter."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kreplica.groups.lag_tracking import LagTracker
from kreplica.interfaces import Family, Sample
from kreplica.interfaces import MetricKind as Kind
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice

LABELS = ("consumergroup", "topic", "partition")


async def group_families(reactor: Reactor, tracker: LagTracker) -> AsyncIterator[Family]:
    """Yield the committed offsets and lags of the groups, which each appear on one broker only."""
    time_slice = TimeSlice(reactor)
    offsets: list[Sample] = []
    lags: list[Sample] = []
    sums: dict[str, int] = {}
    for key, offset, lag in tracker.committed_offsets():
        labels = (key.group_id, key.topic, str(key.partition))
        offsets.append(Sample(labels, float(offset)))
        if lag is not None:
            lags.append(Sample(labels, float(lag)))
            sums[key.group_id] = sums.get(key.group_id, 0) + lag
        if time_slice.is_over:
            await time_slice.next()
    yield Family(
        "kafka_consumergroup_current_offset", Kind.GAUGE, "Committed offset of a group.", LABELS, offsets
    )
    yield Family("kafka_consumergroup_lag", Kind.GAUGE, "Lag of a group in records.", LABELS, lags)
    total = [Sample((group_id,), float(lag)) for group_id, lag in sums.items()]
    help_text = "Sum of the lag of all partitions."
    yield Family("kafka_consumergroup_group_sum_lag", Kind.GAUGE, help_text, LABELS[:1], total)
