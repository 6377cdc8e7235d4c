"""Removes expired committed offsets and the offsets of deleted topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import ErrorCode
from kreplica.groups.config import ExpiryConfig
from kreplica.groups.records import NO_TIME, CommittedOffset, build_offset_key
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from kreplica.coordination import ClusterView, Pair
    from kreplica.groups.group import Group
    from kreplica.groups.offsets import Offsets

log = Logger()

TOMBSTONES_MAX = 1000
"""Maximum number of tombstones per append, because a group may have more offsets than fit into one batch."""


def is_expired(committed: CommittedOffset, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    """Return True if an offset has expired (KIP-211).

    :param since_ms: start of the retention time; None while the group is in use.
    """
    if since_ms is None:
        return False
    if committed.expire_timestamp_ms != NO_TIME:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - since_ms >= retention_ms


def is_deleted(topic: str, view: ClusterView) -> bool:
    """Return True if a topic has been deleted; requires complete cluster metadata."""
    return view.partition_count(topic) is None and view.is_complete


class ExpiringGroups(Protocol):
    """The part of ``GroupShard`` that ``OffsetExpiry`` uses."""

    @property
    def groups(self) -> Mapping[str, Group]:
        """Groups by id."""

    @property
    def offsets(self) -> Offsets:
        """Committed offsets of all groups."""

    def group(self, group_id: str) -> Group | None:
        """Return the group with this id, or None."""

    def delete(self, group_id: str, respond: Callable[[ErrorCode], None]) -> None:
        """Delete a group that has no members, with its offsets."""


class OffsetExpiry:
    """Expires offsets periodically; owned by the shard of one partition.

    It processes one topic of one group at a time, removes expired offsets in one append and then yields to the reactor.
    """

    def __init__(self, runtime: Runtime, shard: ExpiringGroups, view: ClusterView, config: ExpiryConfig) -> None:
        self._runtime = runtime
        self._shard = shard
        self._view = view
        self._config = config
        self._running: dict[Deferred[None], None] = {}

    def start(self) -> None:
        """Start the timer; the first check runs after one interval."""
        self._run(self._check_forever())

    def stop(self) -> None:
        """Cancel all timers and checks in progress."""
        for running in list(self._running):
            running.cancel()

    def topics_removed(self, topics: Collection[str]) -> None:
        """Remove the offsets of deleted topics, so that they do not apply to new topics with the same names."""
        self._run(self._remove_topics(topics))

    def _run(self, loop: Coroutine[Deferred[Any], Any, None]) -> None:
        running = Deferred.fromCoroutine(loop)
        self._running[running] = None
        running.addErrback(_log_failure)
        running.addCallback(lambda _: self._running.pop(running))

    async def _check_forever(self) -> None:
        while True:
            await pause(self._runtime.reactor, self._config.check_interval_ms / 1000)
            await self.check()

    async def check(self) -> None:
        """Check the offsets of all groups once."""
        time_slice = TimeSlice(self._runtime.reactor)
        for group_id in list(self._shard.groups):
            for topic, partitions in self._shard.offsets.partitions_of(group_id):
                self._check_topic(group_id, topic, partitions)
                if time_slice.is_over:
                    await time_slice.next()
            self._remove_unused(group_id)
            if time_slice.is_over:
                await time_slice.next()

    def _check_topic(self, group_id: str, topic: str, partitions: Sequence[int]) -> None:
        group = self._shard.group(group_id)
        offsets = self._shard.offsets
        if group is None or offsets.is_changing(group_id):
            return
        now_ms = self._runtime.wall_clock_ms()
        expired: list[Pair] = []
        topic_is_deleted = is_deleted(topic, self._view)
        for partition in partitions:
            committed = offsets.committed(group_id, topic, partition)
            if committed is None:
                continue
            since_ms = group.expires_from_ms(topic, committed.commit_timestamp_ms)
            if topic_is_deleted or is_expired(committed, since_ms, now_ms, self._config.retention_ms):
                expired.append((build_offset_key(group_id, topic, partition), None))
        if expired:
            log.info(
                "removing {count} expired offsets of group {group!r} in topic {topic!r}",
                count=len(expired),
                group=group_id,
                topic=topic,
            )
            self._remove(group_id, expired)

    async def _remove_topics(self, topics: Collection[str]) -> None:
        time_slice = TimeSlice(self._runtime.reactor)
        offsets = self._shard.offsets
        for group_id in offsets.group_ids():
            if any(offsets.may_have(group_id, topic) for topic in topics):
                self._remove(group_id, offsets.tombstones(group_id, lambda topic, _: topic in topics))
            if time_slice.is_over:
                await time_slice.next()

    def _remove(self, group_id: str, records: list[Pair]) -> None:
        for start in range(0, len(records), TOMBSTONES_MAX):
            self._shard.offsets.remove(
                records[start : start + TOMBSTONES_MAX], lambda code: self._removal_done(group_id, code)
            )

    def _removal_done(self, group_id: str, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._remove_unused(group_id)
        else:
            log.info("cannot remove offsets of group {group!r}, retrying later: {code}", group=group_id, code=code.name)

    def _remove_unused(self, group_id: str) -> None:
        """Delete a group that has neither members nor offsets."""
        group = self._shard.group(group_id)
        if group is not None and group.is_empty and not self._shard.offsets.has(group_id):
            self._shard.delete(group_id, lambda code: None)


def _log_failure(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("offset expiry failed", failure)
