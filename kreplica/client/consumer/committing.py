"""Explicit and automatic commits of a consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.cluster import Cluster
from kreplica.client.consumer.consume_flow import ConsumeFlow
from kreplica.client.consumer.options import ConsumerOptions
from kreplica.client.group.membership import Membership
from kreplica.client_core.errors import ClientError
from kreplica.client_core.offset_queries import commit_offsets, committed_offsets
from kreplica.client_core.offsets import CommittedOffset, GroupIdentity
from kreplica.model import TopicPartition

log = Logger()


def _do_nothing() -> None:
    """Ignore a notification."""


class OffsetCommits:
    """Commits a consumer's offsets for its group, through its membership if there is one.

    :ivar membership: None if partitions were assigned explicitly.
    """

    def __init__(self, cluster: Cluster, options: ConsumerOptions, flow: ConsumeFlow) -> None:
        self.membership: Membership | None = None
        self._cluster = cluster
        self._options = options
        self._flow = flow
        self._reactor = cluster.runtime.reactor
        self._assigned_to: GroupIdentity | None = None
        self._committed_offsets: dict[TopicPartition, CommittedOffset] = {}
        self._timer: IDelayedCall | None = None
        self._committing: Deferred[None] | None = None
        self._closed = False

    @property
    def identity(self) -> GroupIdentity:
        """The identity to commit with.

        While records of lost partitions are still being processed, this is the identity under which the partitions were
        assigned: the coordinator then rejects a transaction with their offsets even if this member has rejoined.
        """
        if self.membership is not None:
            if self._flow.is_processing_revoked and self._assigned_to:
                return self._assigned_to
            return self.membership.identity
        return GroupIdentity(self._group_id)

    @property
    def _group_id(self) -> str:
        if self._options.group_id is None:
            raise ValueError("the consumer has no group_id")
        return self._options.group_id

    async def committed(self, keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets."""
        if self.membership is not None:
            return await self.membership.committed(keys)
        return await committed_offsets(self._cluster, self._group_id, keys)

    async def commit(self, offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None) -> None:
        """Commit the given offsets, or by default those of all delivered records."""
        if offsets is None:
            states = self._flow.states.values()
            for state in states:
                state.mark_processed()
            to_commit = self._committable(self._flow.states)
        else:
            to_commit = {
                key: offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
                for key, offset in offsets.items()
            }
        # A revocation may be waiting for this progress. It must not continue before the coordinator has responded,
        # because the JoinGroup request could overtake the commit.
        on_attempted = _do_nothing if offsets is not None else self._flow.progressed.notify
        try:
            await self._commit(to_commit, on_attempted)
        finally:
            on_attempted()

    async def _commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], on_attempted: Callable[[], None] = _do_nothing
    ) -> None:
        if not offsets:
            on_attempted()
            return
        if self.membership is not None:
            await self.membership.commit(offsets, on_attempted)
        else:
            try:
                await commit_offsets(self._cluster, self._group_id, offsets)
            finally:
                on_attempted()
        self._committed_offsets.update(offsets)

    def record_assignment(self) -> None:
        """Record the identity under which partitions are assigned."""
        if self.membership is not None and not self._flow.is_processing_revoked:
            self._assigned_to = self.membership.identity

    # --- automatic commits ---

    @property
    def is_automatic(self) -> bool:
        return self._options.group is not None and self._options.auto_commit_s is not None

    def begin(self) -> None:
        """Start automatic commits if they are enabled."""
        if self.is_automatic and self._timer is None and not self._closed:
            self._timer = self._reactor.callLater(self._options.auto_commit_s or 0.0, self._tick)

    def close(self) -> None:
        """Stop automatic commits."""
        self._closed = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._committing is not None:
            self._committing.cancel()

    def _tick(self) -> None:
        self._timer = None
        if self._committing is None:
            committing = self._committing = Deferred.fromCoroutine(self.commit_processed(self._flow.states))
            committing.addBoth(self._on_end)
        self.begin()

    def _on_end(self, result: Failure | None) -> None:
        self._committing = None
        if result is not None and not (self._closed and result.check(CancelledError)):
            log.failure("automatic commit failed", result)

    async def commit_all_processed(self) -> None:
        """Commit the offsets of all processed records if automatic commits are enabled."""
        await self.commit_processed(self._flow.states)

    async def commit_processed(self, keys: Iterable[TopicPartition]) -> None:
        """Commit the processed records of partitions if automatic commits are enabled; errors are only logged."""
        if not self.is_automatic:
            return
        offsets = self._committable(keys)
        new = {key: offset for key, offset in offsets.items() if self._committed_offsets.get(key) != offset}
        try:
            await self._commit(new)
        except ClientError as error:
            log.warn("cannot commit offsets: {error}", error=error)

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Discard the recorded commits of revoked partitions."""
        for key in keys:
            self._committed_offsets.pop(key, None)

    def _committable(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        states = [self._flow.states[key] for key in keys if key in self._flow.states]
        found = {state.key: state.committable for state in states}
        return {key: offset for key, offset in found.items() if offset is not None}
