"""Offsets that go: of groups that nobody is in any more, of topics that nobody reads, of topics that are gone."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import ErrorCode
from kreplica.groups.records import NO_TIME, CommittedOffset, build_offset_key
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.runtime.turns import Turns

if TYPE_CHECKING:
    from kreplica.coordination import ClusterView, Pair
    from kreplica.groups.shard import GroupShard

log = Logger()

TOMBSTONES_MAX = 1000
"""Of one append: a group may have more offsets than fit into a batch."""


@dataclass(frozen=True, slots=True)
class ExpiryConfig:
    """The defaults are Kafka's.

    :param retention_ms: how long offsets are kept that nothing keeps: ``offsets.retention.minutes``.
    :param check_interval_ms: how often they are looked for: ``offsets.retention.check.interval.ms``.
    """

    retention_ms: int = 10_080 * 60_000
    check_interval_ms: int = 600_000


def is_expired(committed: CommittedOffset, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    """Whether an offset is to go (KIP-211).

    :param since_ms: from when its retention counts; None while its group keeps it.
    """
    if since_ms is None:
        return False
    if committed.expire_timestamp_ms != NO_TIME:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms


def is_gone(topic: str, view: ClusterView) -> bool:
    """Whether a topic was deleted while nobody told this broker, which knows of all that there are."""
    return view.partition_count(topic) is None and view.is_complete


class OffsetExpiry:
    """Owned by the shard of one partition; looks from ``start`` to ``stop``.

    One topic of one group is one step; what it removes is in one append, and others have their turn between steps.
    """

    def __init__(self, runtime: Runtime, shard: GroupShard, view: ClusterView, config: ExpiryConfig) -> None:
        self._runtime = runtime
        self._shard = shard
        self._view = view
        self._config = config
        self._running: dict[Deferred[None], None] = {}

    def start(self) -> None:
        """Look for the first time when the interval has passed."""
        self._run(self._check_forever())

    def stop(self) -> None:
        """Leave no timer."""
        for running in list(self._running):
            running.cancel()

    def topics_removed(self, topics: Collection[str]) -> None:
        """Topics were deleted: whoever makes one of that name again does not begin in the middle of it."""
        self._run(self._remove_topics(topics))

    def _run(self, loop: Coroutine[Deferred[Any], Any, None]) -> None:
        running = Deferred.fromCoroutine(loop)
        self._running[running] = None
        running.addErrback(_ended)
        running.addCallback(lambda _: self._running.pop(running))

    async def _check_forever(self) -> None:
        while True:
            await pause(self._runtime.reactor, self._config.check_interval_ms / 1000)
            await self.check()

    async def check(self) -> None:
        """Look at all groups, once."""
        turns = Turns(self._runtime.reactor)
        for group_id in list(self._shard.groups):
            for topic, partitions in self._shard.offsets.partitions_of(group_id):
                self._check_topic(group_id, topic, partitions)
                if turns.is_over:
                    await turns.next()
            self._remove_unused(group_id)
            if turns.is_over:
                await turns.next()

    def _check_topic(self, group_id: str, topic: str, partitions: Sequence[int]) -> None:
        group = self._shard.group(group_id)
        offsets = self._shard.offsets
        if group is None or offsets.is_changing(group_id):
            return
        now_ms = self._runtime.wall_clock_ms()
        expired: list[Pair] = []
        topic_is_gone = is_gone(topic, self._view)
        for partition in partitions:
            committed = offsets.committed(group_id, topic, partition)
            if committed is None:
                continue
            since_ms = group.expires_from_ms(topic, committed.commit_timestamp_ms)
            if topic_is_gone or is_expired(committed, since_ms, now_ms, self._config.retention_ms):
                expired.append((build_offset_key(group_id, topic, partition), None))
        if expired:
            log.info("{count} offsets of {group!r} in {topic!r} go", count=len(expired), group=group_id, topic=topic)
            self._remove(group_id, expired)

    async def _remove_topics(self, topics: Collection[str]) -> None:
        turns = Turns(self._runtime.reactor)
        offsets = self._shard.offsets
        for group_id in offsets.group_ids():
            if any(offsets.may_have(group_id, topic) for topic in topics):
                self._remove(group_id, offsets.tombstones(group_id, lambda topic, _: topic in topics))
            if turns.is_over:
                await turns.next()

    def _remove(self, group_id: str, records: list[Pair]) -> None:
        for start in range(0, len(records), TOMBSTONES_MAX):
            self._shard.offsets.remove(
                records[start : start + TOMBSTONES_MAX], lambda code: self._removed(group_id, code)
            )

    def _removed(self, group_id: str, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._remove_unused(group_id)
        else:
            log.info("offsets of {group!r} are kept for now: {code}", group=group_id, code=code.name)

    def _remove_unused(self, group_id: str) -> None:
        """A group without members goes with its last offset."""
        group = self._shard.group(group_id)
        if group is not None and group.is_empty and not self._shard.offsets.has(group_id):
            self._shard.delete(group_id, lambda code: None)


def _ended(failure: Failure) -> None:
    """It was stopped; or this code failed, which is told."""
    if failure.check(CancelledError) is None:
        log.failure("looking for offsets that expire", failure)
