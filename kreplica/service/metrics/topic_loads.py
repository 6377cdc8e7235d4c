"""Samples the records, bytes and rates of topics on this broker.

Logs are compared with their previous state, so that appends need no counters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kreplica.admin.load.topic_loads import TopicLoad
from kreplica.model import TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.runtime import Reactor
from kreplica.runtime.reused_result import ReusedResult
from kreplica.runtime.time_slice import TimeSlice
from kreplica.storage.segments.segment_list import Segments

REUSE_SECONDS = 2.0
"""Time for which a sample is reused."""

RATE_SECONDS_MIN = 5.0
"""Minimum time over which rates are computed."""


class _PartitionSample(NamedTuple):
    """State of a led partition at the last sample."""

    end_offset: int
    active_base: int
    active_size: int
    bytes_out: int


class _Totals:
    """Totals of one topic: gauges of one sample, and the growth since the last one."""

    __slots__ = ("bytes_in", "bytes_out", "disk_bytes", "leaders", "records", "records_in", "size_bytes")

    def __init__(self) -> None:
        self.leaders = self.records = self.size_bytes = self.disk_bytes = 0
        self.records_in = self.bytes_in = self.bytes_out = 0

    def add_led(self, partition: Partition, size: int) -> None:
        self.leaders += 1
        self.records += max(partition.high_watermark - partition.log.log_start_offset, 0)
        self.size_bytes += size

    def add_growth(self, partition: Partition, before: _PartitionSample, now: _PartitionSample) -> None:
        self.records_in += max(now.end_offset - before.end_offset, 0)
        self.bytes_in += appended_bytes(partition.log.segments, before.active_base, before.active_size)
        self.bytes_out += max(now.bytes_out - before.bytes_out, 0)


class TopicLoadSampler:
    """Implements ``admin.load.topic_loads.LocalTopicLoads``; a sample takes 5 us per partition, in slices."""

    def __init__(self, reactor: Reactor, partitions: Partitions) -> None:
        self._reactor = reactor
        self._partitions = partitions
        self._previous: dict[TopicPartition, _PartitionSample] = {}
        self._growth: dict[str, tuple[int, int, int]] = {}
        self._rates: dict[str, tuple[float, float, float]] = {}
        self._rates_from_s: float | None = None
        self._loads: ReusedResult[Mapping[str, TopicLoad]] = ReusedResult(reactor, REUSE_SECONDS)

    async def current(self) -> Mapping[str, TopicLoad]:
        """Return the load by topic; rates are those of the last 5 seconds or more."""
        return await self._loads.current(self._sample)

    async def _sample(self) -> Mapping[str, TopicLoad]:
        started_s, time_slice = self._reactor.seconds(), TimeSlice(self._reactor)
        topics: dict[str, _Totals] = {}
        current: dict[TopicPartition, _PartitionSample] = {}
        for partition in list(self._partitions):
            key, segments = partition.topic_partition, partition.log.segments
            totals = topics.get(key.topic)
            if totals is None:
                totals = topics[key.topic] = _Totals()
            size = segments.size_bytes
            totals.disk_bytes += size
            if partition.is_leader:
                totals.add_led(partition, size)
                active = segments.active
                now = current[key] = _PartitionSample(
                    partition.log.log_end_offset, active.base_offset, active.size, partition.bytes_out
                )
                before = self._previous.get(key)
                if before == now:
                    current[key] = before  # the new one can be freed
                elif before is not None:
                    totals.add_growth(partition, before, now)
            if time_slice.is_over:
                await time_slice.next()
        self._previous = current
        self._update_rates(topics, started_s)
        no_rates = (0.0, 0.0, 0.0)
        loads: dict[str, TopicLoad] = {}
        for topic, totals in topics.items():
            rates = self._rates.get(topic, no_rates)
            loads[topic] = TopicLoad(
                totals.leaders, totals.records, totals.size_bytes, totals.disk_bytes, *rates
            )
            if time_slice.is_over:
                await time_slice.next()
        return loads

    def _update_rates(self, topics: Mapping[str, _Totals], now_s: float) -> None:
        for topic, totals in topics.items():
            if totals.records_in or totals.bytes_in or totals.bytes_out:
                before = self._growth.get(topic, (0, 0, 0))
                grown = (totals.records_in, totals.bytes_in, totals.bytes_out)
                records, bytes_in, bytes_out = map(sum, zip(before, grown, strict=True))
                self._growth[topic] = records, bytes_in, bytes_out
        if self._rates_from_s is None:
            self._rates_from_s = now_s
        elapsed_s = now_s - self._rates_from_s
        if elapsed_s >= RATE_SECONDS_MIN:
            self._rates = {
                topic: (records / elapsed_s, bytes_in / elapsed_s, bytes_out / elapsed_s)
                for topic, (records, bytes_in, bytes_out) in self._growth.items()
            }
            self._growth, self._rates_from_s = {}, now_s


def appended_bytes(segments: Segments, active_base: int, active_size: int) -> int:
    """Return the bytes appended since the given segment was active and had the given size; 0 after a truncation."""
    active = segments.active
    if active.base_offset == active_base:
        return max(active.size - active_size, 0)
    size = sum(segment.size for segment in segments.starting_from(active_base))
    return max(size - active_size, 0)
