"""Metrics of the groups that this broker coordinates, with the names of kafka_exporter."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kreplica.groups.lag_tracking import LagTracker
from kreplica.interfaces import Family, Sample
from kreplica.interfaces import MetricKind as Kind
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice
from kreplica.service.metrics.partition_metrics import Detail

LABELS = ("consumergroup", "topic", "partition")


async def group_families(reactor: Reactor, tracker: LagTracker, detail: Detail) -> AsyncIterator[Family]:
    """Yield the committed offsets and lags of the groups; each group appears on only one broker."""
    time_slice = TimeSlice(reactor)
    count = len(LABELS) if detail is Detail.PARTITION else LABELS.index("partition")
    offsets: dict[tuple[str, ...], int] = {}
    lags: dict[tuple[str, ...], int] = {}
    sums: dict[str, int] = {}
    for key, offset, lag in tracker.committed_offsets():
        labels = (key.group_id, key.topic, str(key.partition))[:count]
        offsets[labels] = offsets.get(labels, 0) + offset
        if lag is not None:
            lags[labels] = lags.get(labels, 0) + lag
            sums[key.group_id] = sums.get(key.group_id, 0) + lag
        if time_slice.is_over:
            await time_slice.next()
    for name, text, values in (
        ("kafka_consumergroup_current_offset", "Committed offset of a group.", offsets),
        ("kafka_consumergroup_lag", "Lag of a group in records.", lags),
    ):
        samples = [Sample(labels, float(value)) for labels, value in values.items()]
        yield Family(name, Kind.GAUGE, text, LABELS[:count], samples)
    total = [Sample((group_id,), float(lag)) for group_id, lag in sums.items()]
    help_text = "Total lag of all partitions."
    yield Family("kafka_consumergroup_group_sum_lag", Kind.GAUGE, help_text, LABELS[:1], total)
