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
    """Works on all partitions of one call concurrently, one call at a time.

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
        self._on_settled = on_validated
        self._working: Deferred[None] | None = None
        self._closed = False

    def close(self) -> None:
        """Stop."""
        self._closed = True
        if self._working is not None:
            self._working.cancel()

    def is_valid(self, reading: PartitionState) -> bool:
        """Return True if records of a partition may be fetched."""
        if reading.position is None:
            return False
        topic = self._cluster.known_topic(reading.key.topic)
        found = None if topic is None else topic.partition(reading.key.partition)
        if topic is None or found is None or found.leader == NO_LEADER:
            return False
        return found.leader_epoch == reading.checked_epoch and topic.topic_id == reading.topic_id

    def validate(self, readings: list[PartitionState]) -> None:
        """Start, unless a call is in progress."""
        if self._working is not None or self._closed or not readings:
            return
        for reading in readings:
            reading.is_validating = True
        working = self._working = Deferred.fromCoroutine(self._validate(readings))
        working.addBoth(self._ended, readings)

    def _ended(self, result: Any, readings: list[PartitionState]) -> None:
        self._working = None
        for reading in readings:
            reading.is_validating = False
        if result is not None:
            error = result.value
            if not isinstance(error, ClientError):
                if not (self._closed and isinstance(error, CancelledError)):
                    log.failure("cannot validate positions", result)
                error = ClientError(f"cannot validate positions: {result.getErrorMessage()}")
            for reading in readings:
                self._fail(reading, error)
        self._on_settled()

    def _fail(self, reading: PartitionState, error: ClientError) -> None:
        if not reading.is_over:
            self._on_failed(reading, error)

    async def _validate(self, readings: list[PartitionState]) -> None:
        topics = sorted({reading.key.topic for reading in readings})
        if any(self._cluster.known_topic(topic) is None for topic in topics):
            await self._cluster.refresh(topics)
        to_find: list[PartitionState] = []
        to_check: dict[TopicPartition, tuple[PartitionState, PartitionView]] = {}
        for reading in readings:
            topic = self._cluster.view.topics.get(reading.key.topic)
            found = None if topic is None else topic.partition(reading.key.partition)
            if topic is None or found is None:
                code = self._cluster.view.problems.get(reading.key.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                self._fail(reading, BrokerRefused(code, f"partition {reading.key}"))
            elif found.leader == NO_LEADER:
                self._fail(reading, LeaderUnknown(f"{reading.key} has no leader at the moment"))
            elif not self._is_another(reading, topic):
                if reading.position is None:
                    to_find.append(reading)
                elif NO_EPOCH < found.leader_epoch < reading.epoch:
                    # A former leader that does not know of its successor would report a truncation.
                    text = (
                        f"{reading.key}: leader epoch {found.leader_epoch} is older than consumed {reading.epoch}"
                    )
                    self._fail(reading, LeaderUnknown(text))
                elif found.leader_epoch != reading.checked_epoch:
                    to_check[reading.key] = reading, found
        await self._find(to_find)
        await self._check(to_check)

    def _is_another(self, reading: PartitionState, topic: TopicView) -> bool:
        """Return True if the topic was deleted and recreated, so that its offsets have no meaning."""
        before, reading.topic_id = reading.topic_id, topic.topic_id
        if ZERO_UUID in (before, topic.topic_id) or before == topic.topic_id or reading.position is None:
            return False
        log.warn("{key}: the topic was recreated; consumed records are gone", key=reading.key)
        self.reset(reading, LogTruncated(reading.key, reading.fetch_offset, 0))
        return True

    # --- positions that are not known ---

    async def _find(self, readings: list[PartitionState]) -> None:
        turns = {reading: reading.turn for reading in readings}
        by_group = [reading for reading in readings if reading.wanted_time is None]
        if by_group:
            committed = await self._committed([reading.key for reading in by_group])
            for reading in by_group:
                if reading.is_over or reading.turn != turns[reading]:
                    continue
                found = committed.get(reading.key)
                if found is not None:
                    reading.begin_at(found.offset, found.leader_epoch)
                else:
                    self.reset(reading, OffsetOutOfRange(reading.key, -1))
                turns[reading] = reading.turn
        times = {reading.key: reading.wanted_time for reading in readings if reading.wanted_time is not None}
        if not times:
            return
        results = await request_offsets(self._cluster, times, self._options.isolation)
        for reading in readings:
            if reading.is_over or reading.turn != turns[reading] or reading.key not in times:
                continue
            answer = results[reading.key]
            if isinstance(answer, ClientError):
                self._fail(reading, answer)
            else:
                reading.begin_at(answer.offset)

    def reset(self, reading: PartitionState, error: ClientError) -> None:
        """Reset a partition by the options' ``offset_reset``, or fail it."""
        time = RESET_TIMES.get(OffsetReset(self._options.offset_reset))
        if time is None:
            self._fail(reading, error)
        else:
            log.info("{error}: reset to the {reset} offset", error=error, reset=self._options.offset_reset)
            reading.reset_to(time)

    # --- positions that may be wrong ---

    async def _check(self, to_check: dict[TopicPartition, tuple[PartitionState, PartitionView]]) -> None:
        asked: dict[TopicPartition, tuple[int, int]] = {}
        turns: dict[TopicPartition, int] = {}
        for key, (reading, found) in to_check.items():
            if reading.is_over:
                continue
            if reading.epoch == NO_EPOCH or found.leader_epoch == NO_EPOCH:
                reading.checked_epoch = found.leader_epoch  # epochs are unknown
                continue
            reading.refetch()
            asked[key], turns[key] = (found.leader_epoch, reading.epoch), reading.turn
        if not asked:
            return
        for key, results in (await request_epoch_ends(self._cluster, asked)).items():
            reading = to_check[key][0]
            if reading.is_over or reading.turn != turns[key]:
                continue
            if isinstance(results, ClientError):
                self._fail(reading, results)
            else:
                self._compare(reading, asked[key][0], *results)

    def _compare(self, reading: PartitionState, leader_epoch: int, epoch: int, end_offset: int) -> None:
        """Compare the position with the end of its leader epoch in the leader's log."""
        position = reading.position
        assert position is not None
        if epoch >= 0 and end_offset >= position:
            reading.checked_epoch = leader_epoch
            return
        truncated = LogTruncated(reading.key, position, end_offset)
        if end_offset < 0 or self._options.offset_reset is OffsetReset.FAIL:
            self.reset(reading, truncated)
        else:
            log.warn("{error}: the position is reset to that offset", error=truncated)
            reading.begin_at(end_offset, epoch)
            reading.checked_epoch = leader_epoch
