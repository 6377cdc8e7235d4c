"""Subscription of a consumer: applies the assignments that its group makes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.cluster import Cluster
from kreplica.client.consumer.committing import OffsetCommits
from kreplica.client.consumer.consume_flow import ConsumeFlow
from kreplica.client.consumer.options import ConsumerOptions
from kreplica.client.consumer.positions import PartitionState
from kreplica.client.group.membership import AssignmentListener
from kreplica.client_core.errors import ClientError
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause

log = Logger()


class Subscription:
    """Membership listener that starts and stops the flow of records and commits before partitions are revoked."""

    def __init__(self, cluster: Cluster, options: ConsumerOptions, flow: ConsumeFlow, commits: OffsetCommits) -> None:
        self._cluster = cluster
        self._options = options
        self._flow = flow
        self._commits = commits
        self._listener: AssignmentListener | None = None
        self._pattern: re.Pattern[str] | None = None
        self._topics: list[str] = []
        self._refreshing: Deferred[None] | None = None
        self._stopping = False

    async def begin(self, topics: Iterable[str] | re.Pattern[str], listener: AssignmentListener | None) -> None:
        """Subscribe to topics, replacing previous ones."""
        self._listener = listener
        if isinstance(topics, re.Pattern):
            self._pattern = topics
            names = await self._cluster.retrying(self._matching)
            if self._refreshing is None:
                self._refreshing = Deferred.fromCoroutine(self._refresh_pattern())
                self._refreshing.addErrback(self._failed)
        else:
            self._pattern, names = None, sorted(set(topics))
        self._topics = names
        membership = self._commits.membership
        if membership is not None:
            membership.subscribe(names)
            return
        from kreplica.client.group import new_membership  # avoids an import cycle

        assert self._options.group is not None
        membership = self._commits.membership = new_membership(self._cluster, self._options.group, names, self)
        await membership.start()
        self._commits.begin()

    async def stop(self) -> None:
        """Release all partitions and leave the group."""
        self._stopping = True
        if self._refreshing is not None:
            self._refreshing.cancel()
        if self._commits.membership is not None:
            await self._commits.membership.stop()

    # --- patterns ---

    async def _matching(self) -> list[str]:
        view = await self._cluster.refresh(None)
        pattern = self._pattern
        if pattern is None:
            return self._topics
        return sorted(
            name for name, topic in view.topics.items() if not topic.is_internal and pattern.fullmatch(name) is not None
        )

    async def _refresh_pattern(self) -> None:
        """Periodically look up the topics that match the pattern."""
        while not self._stopping:
            await pause(self._cluster.runtime.reactor, self._options.pattern_refresh_s)
            try:
                names = await self._matching()
            except ClientError as error:
                log.warn("cannot look up topics: {error}", error=error)
                continue
            if self._pattern is not None and names != self._topics and self._commits.membership is not None:
                self._topics = names
                self._commits.membership.subscribe(names)

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            log.failure("cannot look up topics", failure)
            self._flow.fail(ClientError(f"cannot look up topics: {failure.getErrorMessage()}"))

    # --- called by the membership ---

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Consume partitions from their committed offsets."""
        self._commits.record_assignment()
        self._flow.add([PartitionState(key) for key in sorted(partitions)])
        if self._listener is not None:
            await self._listener.on_assigned(partitions)

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Stop delivery, wait until all delivered records are processed, and commit."""
        keys = sorted(partitions)
        revoked = [key for key in keys if key in self._flow.states]
        self._flow.stop_for_revocation(revoked)
        while not self._flow.closing and any(self._flow.has_unprocessed(key) for key in revoked):
            await self._flow.progressed.wait()
        await self._commits.commit_processed(revoked)
        if self._listener is not None:
            await self._listener.on_revoked(partitions)
        self._forget(keys)

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Drop partitions."""
        self._forget(sorted(partitions))
        if self._listener is not None:
            self._listener.on_lost(partitions)

    def on_ended(self, error: Exception) -> None:
        """Fail the consumer."""
        self._flow.fail(error)
        if self._listener is not None:
            self._listener.on_ended(error)

    def _forget(self, keys: Iterable[TopicPartition]) -> None:
        self._flow.drop(keys)
        self._commits.forget(keys)
