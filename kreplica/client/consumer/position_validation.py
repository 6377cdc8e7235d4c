"""Finding where to read, and whether that is still right: what the fetcher has to know before it asks for records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.client.cluster import Cluster
from kreplica.client.consumer.options import ConsumerOptions, OffsetReset
from kreplica.client.consumer.positions import Reading
from kreplica.client_core.errors import BrokerRefused, ClientError, LeaderUnknown, LogTruncated, OffsetOutOfRange
from kreplica.client_core.metadata import PartitionView, TopicView
from kreplica.client_core.offset_queries import ask_epoch_ends, ask_offsets
from kreplica.client_core.offsets import EARLIEST, LATEST, CommittedOffset
from kreplica.errors import ErrorCode
from kreplica.model import NO_EPOCH, NO_LEADER, ZERO_UUID, TopicPartition

log = Logger()

RESET_TIMES = {OffsetReset.EARLIEST: EARLIEST, OffsetReset.LATEST: LATEST}


class Settler:
    """Works on all readings that need it at the same time, and on one such lot after the other.

    :param committed: asks for what the group committed.
    :param on_failed: called with a reading that cannot be settled at the moment.
    :param on_settled: called when something was settled, or failed.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        *,
        committed: Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, CommittedOffset]]],
        on_failed: Callable[[Reading, ClientError], None],
        on_settled: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._committed = committed
        self._on_failed = on_failed
        self._on_settled = on_settled
        self._working: Deferred[None] | None = None
        self._closed = False

    def close(self) -> None:
        """Settle nothing more."""
        self._closed = True
        if self._working is not None:
            self._working.cancel()

    def is_settled(self, reading: Reading) -> bool:
        """Whether records of a partition may be asked for."""
        if reading.position is None:
            return False
        topic = self._cluster.known_topic(reading.key.topic)
        found = None if topic is None else topic.partition(reading.key.partition)
        if topic is None or found is None or found.leader == NO_LEADER:
            return False
        return found.leader_epoch == reading.checked_epoch and topic.topic_id == reading.topic_id

    def settle(self, readings: list[Reading]) -> None:
        """Begin to, unless it is under way already: ``on_settled`` is called at its end."""
        if self._working is not None or self._closed or not readings:
            return
        for reading in readings:
            reading.is_settling = True
        working = self._working = Deferred.fromCoroutine(self._settle(readings))
        working.addBoth(self._ended, readings)

    def _ended(self, result: Any, readings: list[Reading]) -> None:
        self._working = None
        for reading in readings:
            reading.is_settling = False
        if result is not None:
            error = result.value
            if not isinstance(error, ClientError):
                if not (self._closed and isinstance(error, CancelledError)):
                    log.failure("positions could not be found", result)
                error = ClientError(f"positions could not be found: {result.getErrorMessage()}")
            for reading in readings:
                self._fail(reading, error)
        self._on_settled()

    def _fail(self, reading: Reading, error: ClientError) -> None:
        if not reading.is_over:
            self._on_failed(reading, error)

    async def _settle(self, readings: list[Reading]) -> None:
        topics = sorted({reading.key.topic for reading in readings})
        if any(self._cluster.known_topic(topic) is None for topic in topics):
            await self._cluster.refresh(topics)
        to_find: list[Reading] = []
        to_check: dict[TopicPartition, tuple[Reading, PartitionView]] = {}
        for reading in readings:
            topic = self._cluster.view.topics.get(reading.key.topic)
            found = None if topic is None else topic.partition(reading.key.partition)
            if topic is None or found is None:
                code = self._cluster.view.problems.get(reading.key.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                self._fail(reading, BrokerRefused(code, f"partition {reading.key}"))
            elif found.leader == NO_LEADER:
                self._fail(reading, LeaderUnknown(f"nobody leads {reading.key} at the moment"))
            elif not self._is_another(reading, topic):
                if reading.position is None:
                    to_find.append(reading)
                elif NO_EPOCH < found.leader_epoch < reading.epoch:
                    # Who led then may not know that it leads no more, and would deny what was written since.
                    text = (
                        f"{reading.key}: its leader of epoch {found.leader_epoch} is no more, {reading.epoch} was seen"
                    )
                    self._fail(reading, LeaderUnknown(text))
                elif found.leader_epoch != reading.checked_epoch:
                    to_check[reading.key] = reading, found
        await self._find(to_find)
        await self._check(to_check)

    def _is_another(self, reading: Reading, topic: TopicView) -> bool:
        """Whether the topic was deleted and made anew: then offsets mean nothing any more."""
        before, reading.topic_id = reading.topic_id, topic.topic_id
        if ZERO_UUID in (before, topic.topic_id) or before == topic.topic_id or reading.position is None:
            return False
        log.warn("{key}: the topic was made anew, what was read of it is gone", key=reading.key)
        self.reset(reading, LogTruncated(reading.key, reading.fetch_offset, 0))
        return True

    # --- positions that are not known ---

    async def _find(self, readings: list[Reading]) -> None:
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
        told = await ask_offsets(self._cluster, times, self._options.isolation)
        for reading in readings:
            if reading.is_over or reading.turn != turns[reading] or reading.key not in times:
                continue
            answer = told[reading.key]
            if isinstance(answer, ClientError):
                self._fail(reading, answer)
            else:
                reading.begin_at(answer.offset)

    def reset(self, reading: Reading, error: ClientError) -> None:
        """Let a partition begin where the options say, or fail."""
        time = RESET_TIMES.get(OffsetReset(self._options.offset_reset))
        if time is None:
            self._fail(reading, error)
        else:
            log.info("{error}: reading begins at the {reset} offset", error=error, reset=self._options.offset_reset)
            reading.begin_anew(time)

    # --- positions that may be wrong ---

    async def _check(self, to_check: dict[TopicPartition, tuple[Reading, PartitionView]]) -> None:
        asked: dict[TopicPartition, tuple[int, int]] = {}
        turns: dict[TopicPartition, int] = {}
        for key, (reading, found) in to_check.items():
            if reading.is_over:
                continue
            if reading.epoch == NO_EPOCH or found.leader_epoch == NO_EPOCH:
                reading.checked_epoch = found.leader_epoch  # there is nothing to compare
                continue
            reading.fetch_again()
            asked[key], turns[key] = (found.leader_epoch, reading.epoch), reading.turn
        if not asked:
            return
        for key, told in (await ask_epoch_ends(self._cluster, asked)).items():
            reading = to_check[key][0]
            if reading.is_over or reading.turn != turns[key]:
                continue
            if isinstance(told, ClientError):
                self._fail(reading, told)
            else:
                self._compare(reading, asked[key][0], *told)

    def _compare(self, reading: Reading, leader_epoch: int, epoch: int, end_offset: int) -> None:
        """What the leader's log has of the epoch under which the last record was read, against the position."""
        position = reading.position
        assert position is not None
        if epoch >= 0 and end_offset >= position:
            reading.checked_epoch = leader_epoch
            return
        truncated = LogTruncated(reading.key, position, end_offset)
        if end_offset < 0 or self._options.offset_reset is OffsetReset.FAIL:
            self.reset(reading, truncated)
        else:
            log.warn("{error}: reading goes on from there", error=truncated)
            reading.begin_at(end_offset, epoch)
            reading.checked_epoch = leader_epoch
