"""What the groups of this broker commit, looked at from time to time, and how far they are behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.lag import WINDOW, Status, Window, lag_between, status_of, worst
from kreplica.groups.records import CommittedOffset, OffsetKey
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.runtime.turns import Turns

if TYPE_CHECKING:
    from kreplica.coordination.shards import Shards
    from kreplica.groups.shard import GroupShard

log = Logger()

REST_FACTOR = 10
"""Looking takes at most so small a part of the time, however many groups there are."""


class LogEnds(Protocol):
    """Where partitions' logs end (``coordination.LogEnds``)."""

    async def of(self, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """By partition, as far as somebody could tell."""


@dataclass(frozen=True, slots=True)
class LagConfig:
    """:param interval_s: how often commits are looked at.
    :param windows_max: partitions of groups that are watched, 400 bytes each; others are judged by their last commit.
    """

    interval_s: float = 10.0
    windows_max: int = 100_000


class PartitionLag(NamedTuple):
    """How far one group is behind in one partition.

    :param log_end_offset: None where nobody could tell; lag and status are not known then.
    """

    topic: str
    partition: int
    committed: CommittedOffset
    log_end_offset: int | None
    lag: int | None
    status: Status | None


class GroupLag(NamedTuple):
    """The same of a group: the sum of the lags that are known, and the worst status."""

    group_id: str
    state_name: str
    lag: int
    status: Status
    partitions: list[PartitionLag]


class LagTracker:
    """Owned by the broker; watches the groups that it coordinates from ``start`` to ``stop``.

    Commits are not reported to it: it looks what is committed, so a commit costs nothing more.
    """

    def __init__(
        self, runtime: Runtime, shards: Shards[GroupShard], log_ends: LogEnds, config: LagConfig | None = None
    ) -> None:
        self._runtime = runtime
        self._shards = shards
        self._log_ends = log_ends
        self._config = config or LagConfig()
        self._windows: dict[OffsetKey, Window] = {}
        self._ends: Mapping[TopicPartition, int] = {}
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        """Look for the first time when the interval has passed."""
        self._running = Deferred.fromCoroutine(self._look_forever())
        self._running.addErrback(_ended)

    def stop(self) -> None:
        """Leave no timer."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()

    async def lag_of(self, group_id: str) -> GroupLag:
        """How far a group is behind now.

        :raise KafkaError: GROUP_ID_NOT_FOUND; NOT_COORDINATOR and the like, another broker has to be asked.
        """
        shard = self._shards.current_shard_of(group_id)
        group = shard.group(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        offsets = list(_offsets_of(shard, group_id))
        ends = await self._log_ends.of([_partition_of(key) for key, _ in offsets])
        partitions = [self._partition(key, committed, ends.get(_partition_of(key))) for key, committed in offsets]
        return GroupLag(
            group_id,
            group.state_name,
            sum(each.lag for each in partitions if each.lag is not None),
            worst(each.status for each in partitions if each.status is not None),
            partitions,
        )

    def _partition(self, key: OffsetKey, committed: CommittedOffset, log_end_offset: int | None) -> PartitionLag:
        if log_end_offset is None:
            return PartitionLag(key.topic, key.partition, committed, None, None, None)
        lag = lag_between(committed.offset, log_end_offset)
        now_ms = self._runtime.wall_clock_ms()
        known = self._windows.get(key)
        # What was committed since is seen in a copy: who asks often does not shorten the window.
        window = known.copy() if known is not None else Window()
        window.see(committed.commit_timestamp_ms, committed.offset, lag, now_ms)
        status = status_of(window, lag, now_ms, int(WINDOW * self._config.interval_s * 1000))
        return PartitionLag(key.topic, key.partition, committed, log_end_offset, lag, status)

    def committed(self) -> Iterator[tuple[OffsetKey, int, int | None]]:
        """What the groups of this broker have committed by now: partition, offset, and the lag where it is known.

        Where logs end is what the last look found: nobody is asked.
        """
        for shard in self._shards.loaded():
            for group_id in shard.offsets.group_ids():
                for key, committed in _offsets_of(shard, group_id):
                    end = self._ends.get(_partition_of(key))
                    yield key, committed.offset, None if end is None else lag_between(committed.offset, end)

    # --- looking -----------------------------------------------------------------------------------------------------

    async def _look_forever(self) -> None:
        rest_s = self._config.interval_s
        while True:
            await pause(self._runtime.reactor, rest_s)
            began_s = self._runtime.reactor.seconds()
            await self.look()
            rest_s = max(self._config.interval_s, (self._runtime.reactor.seconds() - began_s) * REST_FACTOR)

    async def look(self) -> None:
        """See what all groups have committed by now."""
        keys = await self._committed_partitions()
        if not keys:
            self._windows, self._ends = {}, {}
            return
        ends = self._ends = await self._log_ends.of(keys)
        turns = Turns(self._runtime.reactor)
        windows: dict[OffsetKey, Window] = {}
        for shard in self._shards.loaded():
            for group_id in shard.offsets.group_ids():
                self._see(shard, group_id, ends, windows)
                if turns.is_over:
                    await turns.next()
        self._windows = windows

    async def _committed_partitions(self) -> list[TopicPartition]:
        turns = Turns(self._runtime.reactor)
        keys: dict[TopicPartition, None] = {}
        for shard in self._shards.loaded():
            for group_id in shard.offsets.group_ids():
                for topic, partitions in shard.offsets.partitions_of(group_id):
                    keys.update(dict.fromkeys(TopicPartition(topic, partition) for partition in partitions))
                if turns.is_over:
                    await turns.next()
        return list(keys)

    def _see(
        self,
        shard: GroupShard,
        group_id: str,
        ends: Mapping[TopicPartition, int],
        windows: dict[OffsetKey, Window],
    ) -> None:
        now_ms = self._runtime.wall_clock_ms()
        for key, committed in _offsets_of(shard, group_id):
            log_end_offset = ends.get(_partition_of(key))
            window = self._windows.get(key)
            if window is None:
                if len(windows) >= self._config.windows_max:
                    continue
                window = Window()
            windows[key] = window
            if log_end_offset is not None:
                lag = lag_between(committed.offset, log_end_offset)
                window.see(committed.commit_timestamp_ms, committed.offset, lag, now_ms)


def _offsets_of(shard: GroupShard, group_id: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
    for topic, partitions in shard.offsets.partitions_of(group_id):
        for partition in partitions:
            committed = shard.offsets.committed(group_id, topic, partition)
            if committed is not None:
                yield OffsetKey(group_id, topic, partition), committed


def _partition_of(key: OffsetKey) -> TopicPartition:
    return TopicPartition(key.topic, key.partition)


def _ended(failure: Failure) -> None:
    """It was stopped; or this code failed, which is told."""
    if failure.check(CancelledError) is None:
        log.failure("looking at what groups commit", failure)
