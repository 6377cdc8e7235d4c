"""Adds the load of this broker's topics and groups to their histories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kreplica.admin.load.subject_histories import GROUP_SERIES, TOPIC_SERIES, SubjectHistories
from kreplica.admin.load.topic_loads import LocalTopicLoads, TopicLoad
from kreplica.groups.lag_tracking import SampledGroup
from kreplica.runtime import Runtime
from kreplica.runtime.time_slice import TimeSlice

Rows = Iterable[tuple[str, float, Sequence[float | None]]]
"""Name, activity and values of each subject."""


class SampledGroups(Protocol):
    """The groups that this broker coordinates, as sampled by ``LagTracker``."""

    @property
    def sampled(self) -> Mapping[str, SampledGroup]: ...

    @property
    def sampled_s(self) -> float | None: ...


class SubjectSampler:
    """Takes a sample of all topics and groups whenever ``HistorySampler`` takes one.

    :ivar topics: the histories of topics with partitions that this broker leads.
    :ivar groups: the histories of the groups that this broker coordinates.
    """

    def __init__(self, runtime: Runtime, topic_loads: LocalTopicLoads, groups: SampledGroups) -> None:
        self._runtime = runtime
        self._topic_loads = topic_loads
        self._groups = groups
        self._before: tuple[float, Mapping[str, SampledGroup]] | None = None
        self._consumed: Mapping[str, float] = {}
        self.topics = SubjectHistories(TOPIC_SERIES)
        self.groups = SubjectHistories(GROUP_SERIES)

    async def sample(self) -> None:
        """Take one sample."""
        loads = await self._topic_loads.current()
        await self._add(self.topics, _topic_rows(loads))
        self._update_consumed()
        await self._add(self.groups, self._group_rows())

    async def _add(self, histories: SubjectHistories, rows: Rows) -> None:
        at_ms, time_slice = self._runtime.wall_clock_ms(), TimeSlice(self._runtime.reactor)
        for subject, activity, values in rows:
            histories.add(subject, at_ms, activity, values)
            if time_slice.is_over:
                await time_slice.next()
        histories.end_sample(at_ms)

    def _update_consumed(self) -> None:
        """Compute the consumption rates if the groups have been sampled again."""
        sampled, sampled_s = self._groups.sampled, self._groups.sampled_s
        if sampled_s is None or (self._before is not None and self._before[0] == sampled_s):
            return
        if self._before is not None:
            before_s, before = self._before
            self._consumed = {
                name: max(group.committed - before[name].committed, 0) / (sampled_s - before_s)
                for name, group in sampled.items()
                if name in before
            }
        self._before = sampled_s, sampled

    def _group_rows(self) -> Rows:
        for name, group in list(self._groups.sampled.items()):
            consumed = self._consumed.get(name)
            yield name, consumed or 0.0, (group.lag, consumed, group.members)


def _topic_rows(loads: Mapping[str, TopicLoad]) -> Rows:
    for topic, load in loads.items():
        if load.leaders:
            activity = load.bytes_in_rate + load.bytes_out_rate
            yield topic, activity, (load.records_in_rate, load.bytes_in_rate, load.bytes_out_rate, load.size_bytes)
