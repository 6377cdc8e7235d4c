"""Samples the commits of the groups of this broker and computes their lag."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.lag import WINDOW, Status, Window, has_several_commits, lag_between, status_of, worst
from kreplica.groups.records import CommittedOffset, OffsetKey
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from kreplica.coordination.shards import Shards
    from kreplica.groups.group import Group
    from kreplica.groups.shard import GroupShard

log = Logger()

PAUSE_FACTOR = 10
"""Minimum ratio between the pause after a sample and the duration of the sample."""


class EndOffsets(Protocol):
    """Source of offsets (``coordination.EndOffsets``)."""

    async def of(self, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the end offset (high watermark) of each partition whose leader responds."""

    async def first_of(self, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the log start offset of each partition whose leader responds."""


@dataclass(frozen=True, slots=True)
class LagConfig:
    """Settings of lag tracking.

    :param interval_s: sampling interval in seconds.
    :param windows_max: maximum number of partitions for which samples are kept, at 400 bytes each. For further
        partitions, the status is derived from the last commit only.
    """

    interval_s: float = 10.0
    windows_max: int = 100_000


class PartitionLag(NamedTuple):
    """Lag of a group in one partition.

    :param committed: None if the group has never committed an offset; the lag is then the number of all records.
    :param log_end_offset: the high watermark; None if it is unknown; ``lag`` and ``status`` are then also None.
    """

    topic: str
    partition: int
    committed: CommittedOffset | None
    log_end_offset: int | None
    lag: int | None
    status: Status | None


class GroupLag(NamedTuple):
    """Lag of a group: the sum of known lags and the worst status.

    :param partitions: all partitions of subscribed topics and of topics with committed offsets.
    :param partitions_without_commit: number of partitions without a committed offset.
    :param lag_without_commit: lag in these partitions.
    """

    group_id: str
    state_name: str
    lag: int
    status: Status
    partitions: list[PartitionLag]
    partitions_without_commit: int = 0
    lag_without_commit: int = 0


class SampledGroup(NamedTuple):
    """A group at the last sample.

    :param lag: see ``GroupLag``; None if no end offset is known.
    :param committed: sum of the committed offsets.
    """

    lag: int | None
    committed: int
    members: int


class GroupSummary(NamedTuple):
    """Lag of a group, without details of its partitions; see ``GroupLag``.

    :param topics: topics with committed offsets, and subscribed topics.
    :param partitions: number of partitions of these topics.
    :param lag: None if no end offset is known.
    :param last_commit_ms: time of the last commit in milliseconds since 1970; None without one.
    """

    group: Group
    topics: tuple[str, ...]
    partitions: int
    partitions_without_commit: int
    lag: int | None
    lag_without_commit: int
    last_commit_ms: int | None
    status: Status


class LagTracker:
    """Samples the lag of the groups that this broker coordinates from ``start`` to ``stop``; owned by the broker.

    Committed offsets are polled, so that tracking adds no cost to commits.

    :param partition_count: returns the number of partitions of a topic; None if the topic is unknown.
    :ivar sampled: the groups at the last sample, by id.
    :ivar sampled_s: time of the last sample on the reactor's clock; None before the first one.
    """

    def __init__(
        self,
        runtime: Runtime,
        shards: Shards[GroupShard],
        end_offsets: EndOffsets,
        config: LagConfig | None = None,
        partition_count: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self._partition_count = partition_count
        self._runtime = runtime
        self._shards = shards
        self._end_offsets = end_offsets
        self._config = config or LagConfig()
        self._windows: dict[OffsetKey, Window] = {}
        self._ends: Mapping[TopicPartition, int] = {}
        self._running: Deferred[None] | None = None
        self.sampled: Mapping[str, SampledGroup] = {}
        self.sampled_s: float | None = None

    def start(self) -> None:
        """Start the timer; the first sample is taken after one interval."""
        self._running = Deferred.fromCoroutine(self._sample_forever())
        self._running.addErrback(_log_failure)

    def stop(self) -> None:
        """Cancel the timer and any sample in progress."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()

    async def lag_of(self, group_id: str) -> GroupLag:
        """Return the current lag of a group.

        :raise KafkaError: GROUP_ID_NOT_FOUND, or NOT_COORDINATOR and similar errors if another broker coordinates it.
        """
        shard = self._shards.current_shard_of(group_id)
        group = shard.group(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} does not exist")
        offsets = list(_offsets_of(shard, group_id))
        uncommitted = list(self._without_commit(group, shard))
        ends = await self._end_offsets.of([*(_partition_of(key) for key, _ in offsets), *uncommitted])
        starts = await self._end_offsets.first_of(uncommitted)
        unread = [_lag_without_commit(key, starts.get(key), ends.get(key)) for key in uncommitted]
        partitions, status = self._partition_lags(group, offsets, ends, unread)
        return GroupLag(
            group_id,
            group.state_name,
            sum(each.lag for each in (*partitions, *unread) if each.lag is not None),
            status,
            sorted([*partitions, *unread], key=_sort_key),
            len(unread),
            sum(each.lag for each in unread if each.lag is not None),
        )

    async def summaries(self) -> list[GroupSummary]:
        """Return the current lag of all groups that this broker coordinates."""
        keys, uncommitted = await self._tracked_partitions()
        ends = await self._end_offsets.of(list({**keys, **uncommitted}))
        starts = await self._end_offsets.first_of(list(uncommitted))
        time_slice = TimeSlice(self._runtime.reactor)
        summaries = []
        for shard in self._shards.loaded_shards():
            for group_id in list(shard.groups):
                group = shard.group(group_id)
                if group is not None:
                    summaries.append(self._summary(group, shard, ends, starts))
                if time_slice.is_over:
                    await time_slice.next()
        return summaries

    def _summary(
        self,
        group: Group,
        shard: GroupShard,
        ends: Mapping[TopicPartition, int],
        starts: Mapping[TopicPartition, int],
    ) -> GroupSummary:
        keys = self._without_commit(group, shard)
        unread = [_lag_without_commit(key, starts.get(key), ends.get(key)) for key in keys]
        partitions, status = self._partition_lags(group, _offsets_of(shard, group.group_id), ends, unread)
        commits_ms = [each.committed.commit_timestamp_ms for each in partitions if each.committed is not None]
        topics = sorted({each.topic for each in (*partitions, *unread)})
        lags = [each.lag for each in partitions if each.lag is not None]
        uncommitted = [each.lag for each in unread if each.lag is not None]
        total = sum(lags) + sum(uncommitted) if lags or uncommitted or not (partitions or unread) else None
        return GroupSummary(
            group,
            tuple(topics),
            len(partitions) + len(unread),
            len(unread),
            total,
            sum(uncommitted),
            max(commits_ms, default=None),
            status,
        )

    def _without_commit(self, group: Group, shard: GroupShard) -> Iterator[TopicPartition]:
        """Yield the partitions of the group's topics for which the group has never committed an offset."""
        known = dict(shard.offsets.partitions_of(group.group_id))
        for topic in sorted({*known, *group.subscribed_topics}):
            committed = set(known.get(topic, ()))
            for number in range(self._partition_count(topic) or 0):
                if number not in committed:
                    yield TopicPartition(topic, number)

    def _partition_lags(
        self,
        group: Group,
        offsets: Iterable[tuple[OffsetKey, CommittedOffset]],
        ends: Mapping[TopicPartition, int],
        unread: Sequence[PartitionLag],
    ) -> tuple[list[PartitionLag], Status]:
        """Return the lag in the partitions with a committed offset, and the status of the group.

        :param unread: the lag in the partitions without a committed offset.
        """
        now_ms, silence_ms = self._runtime.wall_clock_ms(), int(WINDOW * self._config.interval_s * 1000)
        rows: list[PartitionLag] = []
        windows: list[Window] = []
        for key, committed in offsets:
            end = ends.get(_partition_of(key))
            lag = None if end is None else lag_between(committed.offset, end)
            known = self._windows.get(key)
            # Copied, so that frequent calls do not fill the window.
            window = known.copy() if known is not None else Window()
            if lag is not None:
                window.add(committed.commit_timestamp_ms, committed.offset, lag, now_ms)
            windows.append(window)
            rows.append(PartitionLag(key.topic, key.partition, committed, end, lag, None))
        if not has_consumer(group, windows):
            rows = [each if each.lag is None else each._replace(status=_without_consumer(each.lag)) for each in rows]
            return rows, worst(_without_consumer(each.lag) for each in (*rows, *unread))
        rows = [
            each if each.lag is None else each._replace(status=status_of(window, each.lag, now_ms, silence_ms))
            for each, window in zip(rows, windows, strict=True)
        ]
        return rows, worst(each.status for each in rows if each.status is not None)

    def committed_offsets(self) -> Iterator[tuple[OffsetKey, int, int | None]]:
        """Yield the key, committed offset and lag of every partition with a committed offset.

        The lag is based on the end offsets of the last sample; it is None if the end offset is unknown.
        """
        for shard in self._shards.loaded_shards():
            for group_id in shard.offsets.group_ids():
                for key, committed in _offsets_of(shard, group_id):
                    end = self._ends.get(_partition_of(key))
                    yield key, committed.offset, None if end is None else lag_between(committed.offset, end)

    def caught_up_ms(self, key: OffsetKey) -> int:
        """Return the time of the last sample without lag; -1 if there was none."""
        window = self._windows.get(key)
        return -1 if window is None else window.caught_up_ms

    # --- sampling ----------------------------------------------------------------------------------------------------

    async def _sample_forever(self) -> None:
        pause_s = self._config.interval_s
        while True:
            await pause(self._runtime.reactor, pause_s)
            started_s = self._runtime.reactor.seconds()
            await self.sample()
            pause_s = max(self._config.interval_s, (self._runtime.reactor.seconds() - started_s) * PAUSE_FACTOR)

    async def sample(self) -> None:
        """Sample the commits of all groups once."""
        keys, uncommitted = await self._tracked_partitions()
        ends = self._ends = await self._end_offsets.of(list({**keys, **uncommitted}))
        starts = await self._end_offsets.first_of(list(uncommitted))
        time_slice = TimeSlice(self._runtime.reactor)
        windows: dict[OffsetKey, Window] = {}
        sampled: dict[str, SampledGroup] = {}
        for shard in self._shards.loaded_shards():
            for group_id in list(shard.groups):
                group = shard.group(group_id)
                if group is not None:
                    partitions = self._without_commit(group, shard)
                    unread = [_lag_without_commit(key, starts.get(key), ends.get(key)) for key in partitions]
                    sampled[group_id] = self._sample_group(shard, group, ends, windows, unread)
                if time_slice.is_over:
                    await time_slice.next()
        self._windows, self.sampled, self.sampled_s = windows, sampled, self._runtime.reactor.seconds()

    async def _tracked_partitions(self) -> tuple[dict[TopicPartition, None], dict[TopicPartition, None]]:
        """Return the partitions with a committed offset and the other partitions of the groups' topics."""
        time_slice = TimeSlice(self._runtime.reactor)
        keys: dict[TopicPartition, None] = {}
        uncommitted: dict[TopicPartition, None] = {}
        for shard in self._shards.loaded_shards():
            for group_id in list(shard.groups):
                group = shard.group(group_id)
                if group is not None:
                    for topic, numbers in shard.offsets.partitions_of(group_id):
                        keys.update(dict.fromkeys(TopicPartition(topic, number) for number in numbers))
                    uncommitted.update(dict.fromkeys(self._without_commit(group, shard)))
                if time_slice.is_over:
                    await time_slice.next()
        return keys, uncommitted

    def _sample_group(
        self,
        shard: GroupShard,
        group: Group,
        ends: Mapping[TopicPartition, int],
        windows: dict[OffsetKey, Window],
        unread: Sequence[PartitionLag],
    ) -> SampledGroup:
        now_ms = self._runtime.wall_clock_ms()
        lags = [each.lag for each in unread if each.lag is not None]
        count, committed_sum = len(unread), 0
        for key, committed in _offsets_of(shard, group.group_id):
            count += 1
            committed_sum += max(committed.offset, 0)
            log_end_offset = ends.get(_partition_of(key))
            lag = None if log_end_offset is None else lag_between(committed.offset, log_end_offset)
            if lag is not None:
                lags.append(lag)
            window = self._windows.get(key)
            if window is None:
                if len(windows) >= self._config.windows_max:
                    continue
                window = Window()
            windows[key] = window
            if lag is not None:
                window.add(committed.commit_timestamp_ms, committed.offset, lag, now_ms)
        return SampledGroup(sum(lags) if lags or not count else None, committed_sum, group.member_count)


def _offsets_of(shard: GroupShard, group_id: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
    for topic, partitions in shard.offsets.partitions_of(group_id):
        for partition in partitions:
            committed = shard.offsets.committed(group_id, topic, partition)
            if committed is not None:
                yield OffsetKey(group_id, topic, partition), committed


def _partition_of(key: OffsetKey) -> TopicPartition:
    return TopicPartition(key.topic, key.partition)


def _lag_without_commit(key: TopicPartition, start: int | None, end: int | None) -> PartitionLag:
    """Return the lag in a partition without a committed offset: all of its records."""
    lag = None if start is None or end is None else max(end - start, 0)
    return PartitionLag(key.topic, key.partition, None, end, lag, None)


def has_consumer(group: Group, windows: Iterable[Window]) -> bool:
    """Return True if the group has a member, or if a client commits that assigns partitions to itself.

    A group that has had members is not used by such clients, so it has no consumer after its last member has left.
    """
    return group.member_count > 0 or (not group.protocol_type and any(map(has_several_commits, windows)))


def _without_consumer(lag: int | None) -> Status:
    return Status.STOPPED if lag else Status.OK


def _sort_key(row: PartitionLag) -> tuple[str, int]:
    return row.topic, row.partition


def _log_failure(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("lag tracking failed", failure)
