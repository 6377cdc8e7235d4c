"""Finds and validates the positions of partitions before records are fetched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.client.cluster import Cluster
from kreplica.client.consumer.options import ConsumerOptions, OffsetReset
from kreplica.client.consumer.positions import PartitionState
from kreplica.client_core.errors import BrokerRefused, ClientError, LeaderUnknown, LogTruncated, OffsetOutOfRange
from kreplica.client_core.metadata import PartitionView, TopicView
from kreplica.client_core.offset_queries import request_epoch_ends, request_offsets
from kreplica.client_core.offsets import EARLIEST, LATEST, CommittedOffset
from kreplica.errors import ErrorCode
from kreplica.model import NO_EPOCH, NO_LEADER, ZERO_UUID, TopicPartition

log = Logger()

RESET_TIMES = {OffsetReset.EARLIEST: EARLIEST, OffsetReset.LATEST: LATEST}


class PositionValidator:
    """Finds and validates positions: concurrently for all partitions of a call, with one call in progress at a time.

    :param committed: returns the group's committed offsets.
    :param on_failed: called with a partition and its error.
    :param on_validated: called after each call.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        *,
        committed: Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, CommittedOffset]]],
        on_failed: Callable[[PartitionState, ClientError], None],
        on_validated: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._committed = committed
        self._on_failed = on_failed
        self._on_validated = on_validated
        self._validation: Deferred[None] | None = None
        self._closed = False

    def close(self) -> None:
        """Cancel the call in progress and ignore later calls."""
        self._closed = True
        if self._validation is not None:
            self._validation.cancel()

    def is_valid(self, state: PartitionState) -> bool:
        """Return True if the position is known and valid for the current leader, so that records may be fetched."""
        if state.position is None:
            return False
        topic = self._cluster.known_topic(state.key.topic)
        partition = None if topic is None else topic.partition(state.key.partition)
        if topic is None or partition is None or partition.leader == NO_LEADER:
            return False
        return partition.leader_epoch == state.validated_epoch and topic.topic_id == state.topic_id

    def validate(self, states: list[PartitionState]) -> None:
        """Start finding or validating the positions of partitions, unless a call is in progress."""
        if self._validation is not None or self._closed or not states:
            return
        for state in states:
            state.is_validating = True
        validation = self._validation = Deferred.fromCoroutine(self._validate(states))
        validation.addBoth(self._on_end, states)

    def _on_end(self, result: Any, states: list[PartitionState]) -> None:
        self._validation = None
        for state in states:
            state.is_validating = False
        if result is not None:
            error = result.value
            if not isinstance(error, ClientError):
                if not (self._closed and isinstance(error, CancelledError)):
                    log.failure("cannot validate positions", result)
                error = ClientError(f"cannot validate positions: {result.getErrorMessage()}")
            for state in states:
                self._fail(state, error)
        self._on_validated()

    def _fail(self, state: PartitionState, error: ClientError) -> None:
        if not state.is_unassigned:
            self._on_failed(state, error)

    async def _validate(self, states: list[PartitionState]) -> None:
        topics = sorted({state.key.topic for state in states})
        if any(self._cluster.known_topic(topic) is None for topic in topics):
            await self._cluster.refresh(topics)
        to_find: list[PartitionState] = []
        to_check: dict[TopicPartition, tuple[PartitionState, PartitionView]] = {}
        for state in states:
            topic = self._cluster.view.topics.get(state.key.topic)
            partition = None if topic is None else topic.partition(state.key.partition)
            if topic is None or partition is None:
                code = self._cluster.view.problems.get(state.key.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                self._fail(state, BrokerRefused(code, f"partition {state.key}"))
            elif partition.leader == NO_LEADER:
                self._fail(state, LeaderUnknown(f"{state.key} currently has no leader"))
            elif not self._was_recreated(state, topic):
                if state.position is None:
                    to_find.append(state)
                elif NO_EPOCH < partition.leader_epoch < state.epoch:
                    # A former leader that does not know its successor yet would report a truncation.
                    text = (
                        f"{state.key}: leader epoch {partition.leader_epoch} is older than consumed epoch {state.epoch}"
                    )
                    self._fail(state, LeaderUnknown(text))
                elif partition.leader_epoch != state.validated_epoch:
                    to_check[state.key] = state, partition
        await self._find_positions(to_find)
        await self._check_epochs(to_check)

    def _was_recreated(self, state: PartitionState, topic: TopicView) -> bool:
        """Return True, and reset the partition, if the topic was recreated, so that the old offsets have no meaning."""
        before, state.topic_id = state.topic_id, topic.topic_id
        if ZERO_UUID in (before, topic.topic_id) or before == topic.topic_id or state.position is None:
            return False
        log.warn("{key}: the topic was deleted and recreated; its offsets start at 0", key=state.key)
        self.reset(state, LogTruncated(state.key, state.fetch_offset, 0))
        return True

    # --- unknown positions ---

    async def _find_positions(self, states: list[PartitionState]) -> None:
        reset_counts = {state: state.reset_count for state in states}
        unpositioned = [state for state in states if state.lookup_time is None]
        if unpositioned:
            committed = await self._committed([state.key for state in unpositioned])
            for state in unpositioned:
                if state.is_unassigned or state.reset_count != reset_counts[state]:
                    continue
                offset = committed.get(state.key)
                if offset is not None:
                    state.begin_at(offset.offset, offset.leader_epoch)
                else:
                    self.reset(state, OffsetOutOfRange(state.key, -1))
                reset_counts[state] = state.reset_count
        times = {state.key: state.lookup_time for state in states if state.lookup_time is not None}
        if not times:
            return
        results = await request_offsets(self._cluster, times, self._options.isolation)
        for state in states:
            if state.is_unassigned or state.reset_count != reset_counts[state] or state.key not in times:
                continue
            result = results[state.key]
            if isinstance(result, ClientError):
                self._fail(state, result)
            else:
                state.begin_at(result.offset)

    def reset(self, state: PartitionState, error: ClientError) -> None:
        """Reset a partition according to ``offset_reset``; fail it with the error if resets are not allowed."""
        time = RESET_TIMES.get(OffsetReset(self._options.offset_reset))
        if time is None:
            self._fail(state, error)
        else:
            log.info("{error}: reset to the {reset} offset", error=error, reset=self._options.offset_reset)
            state.reset_to(time)

    # --- validation after a leader change ---

    async def _check_epochs(self, to_check: dict[TopicPartition, tuple[PartitionState, PartitionView]]) -> None:
        requested: dict[TopicPartition, tuple[int, int]] = {}
        reset_counts: dict[TopicPartition, int] = {}
        for key, (state, partition) in to_check.items():
            if state.is_unassigned:
                continue
            if state.epoch == NO_EPOCH or partition.leader_epoch == NO_EPOCH:
                state.validated_epoch = partition.leader_epoch  # epochs are unknown
                continue
            state.refetch()
            requested[key], reset_counts[key] = (partition.leader_epoch, state.epoch), state.reset_count
        if not requested:
            return
        for key, results in (await request_epoch_ends(self._cluster, requested)).items():
            state = to_check[key][0]
            if state.is_unassigned or state.reset_count != reset_counts[key]:
                continue
            if isinstance(results, ClientError):
                self._fail(state, results)
            else:
                self._compare_epoch_end(state, requested[key][0], *results)

    def _compare_epoch_end(self, state: PartitionState, leader_epoch: int, epoch: int, end_offset: int) -> None:
        """Compare the position with the end offset of its leader epoch in the leader's log."""
        position = state.position
        assert position is not None
        if epoch >= 0 and end_offset >= position:
            state.validated_epoch = leader_epoch
            return
        truncated = LogTruncated(state.key, position, end_offset)
        if end_offset < 0 or self._options.offset_reset is OffsetReset.FAIL:
            self.reset(state, truncated)
        else:
            log.warn("{error}: the position is reset to that offset", error=truncated)
            state.begin_at(end_offset, epoch)
            state.validated_epoch = leader_epoch
