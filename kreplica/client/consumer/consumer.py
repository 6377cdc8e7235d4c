"""``Consumer``: consumes records."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Literal, Self

from kreplica.client.cluster import Cluster
from kreplica.client.consumer.committing import OffsetCommits
from kreplica.client.consumer.consume_flow import ConsumeFlow
from kreplica.client.consumer.handler_run import BatchHandler, HandlerRun, RecordHandler
from kreplica.client.consumer.options import Concurrency, ConsumerOptions, OffsetReset
from kreplica.client.consumer.position_validation import RESET_TIMES
from kreplica.client.consumer.positions import PartitionState
from kreplica.client.consumer.records import ConsumedBatch, ConsumedRecord
from kreplica.client.consumer.subscription import Subscription
from kreplica.client.group.membership import AssignmentListener
from kreplica.client_core.offset_queries import offsets_by_time
from kreplica.client_core.offsets import EARLIEST, LATEST, CommittedOffset, GroupIdentity, TimedOffset
from kreplica.model import TopicPartition

Offsets = Mapping[TopicPartition, int | CommittedOffset]

RECORDS_MAX = 1000
"""Default maximum number of records that ``poll`` returns."""


class Consumer:
    """Consumes partitions that are assigned explicitly (``assign``) or by its group (``subscribe``).

    Use it as an asynchronous context manager, or call ``close``.  Records are delivered by iteration (``async for
    record in consumer``), in batches (``async for batch in consumer.batches()``), by ``poll``, or to a handler
    (``run``); use only one of these at a time.  For automatic commits, delivered records are considered processed when
    the next ones are requested.

    :param topics: topics to subscribe to: names or a pattern; without a group, all their partitions are assigned.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions | None = None,
        *,
        topics: Iterable[str] | re.Pattern[str] | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options or ConsumerOptions()
        self._topics = topics if topics is None or isinstance(topics, re.Pattern) else list(topics)
        self._flow = ConsumeFlow(cluster, self._options, self._committed)
        self._commits = OffsetCommits(cluster, self._options, self._flow)
        self._subscription: Subscription | None = None
        self._run: HandlerRun | None = None

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not GeneratorExit:
            await self.close()

    async def _begin(self) -> None:
        """Subscribe to the topics that were passed to the constructor, or assign their partitions."""
        topics, self._topics = self._topics, None
        if topics is None:
            return
        if self._options.group is not None:
            await self.subscribe(topics)
        elif isinstance(topics, re.Pattern):
            raise ValueError("a topic pattern requires a group")
        else:
            views = [await self._cluster.find_topic(topic) for topic in topics]
            await self.assign(TopicPartition(view.name, each.partition) for view in views for each in view.partitions)

    async def close(self) -> None:
        """Let handlers complete, commit processed records, leave the group and close the connections."""
        if self._flow.closing:
            return
        self._flow.closing = True
        self._flow.changed.notify()
        try:
            if self._run is not None:
                await self._run.stop_and_wait(self._options.close_timeout_s)
            if self._subscription is not None:
                await self._subscription.stop()
            else:
                await self._commits.commit_all_processed()
        except GeneratorExit:
            raise  # nothing can be awaited in a closed coroutine
        except BaseException:
            await self._release()
            raise
        await self._release()

    async def _release(self) -> None:
        self._commits.close()
        await self._flow.close()

    # --- assignment ---

    async def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Replace the assigned partitions; one that stays assigned keeps its position unless an offset is given.

        :param partitions: the partitions, optionally mapped to start offsets (or ``EARLIEST``, ``LATEST``). A new
            partition without a start offset starts at its committed offset; without one, ``offset_reset`` applies.
        :raise ClientError: an offset was not found in time, or a partition does not exist; nothing was changed.
        """
        self._flow.check_open()
        if self._subscription is not None:
            raise ValueError("the group assigns the partitions of this consumer")
        offsets = partitions if isinstance(partitions, Mapping) else {}
        keys = list(partitions)
        starts = await self._starts({key: offsets[key] for key in keys if key in offsets})
        missing = [key for key in keys if key not in offsets and key not in self._flow.states]
        starts |= await self._default_starts(missing)
        self._flow.check_open()
        self._flow.drop([key for key in self._flow.states if key not in keys or key in offsets])
        self._flow.add([_initial_state(key, starts[key]) for key in keys if key in starts])
        self._commits.begin()

    async def _starts(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommittedOffset]:
        times = {key: offset for key, offset in offsets.items() if offset in (EARLIEST, LATEST)}
        found = await offsets_by_time(self._cluster, times, self._options.isolation) if times else {}
        return {key: CommittedOffset(found[key].offset if key in found else offsets[key]) for key in offsets}

    async def _default_starts(self, keys: list[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        committed = await self._committed(keys) if keys and self._options.group is not None else {}
        time = RESET_TIMES.get(OffsetReset(self._options.offset_reset))
        uncommitted = [key for key in keys if key not in committed]
        if uncommitted and time is None:
            raise ValueError(f"{uncommitted[0]} has no committed offset, and offset_reset is FAIL")
        return {**committed, **await self._starts(dict.fromkeys(uncommitted, time or 0))}

    async def subscribe(
        self, topics: Iterable[str] | re.Pattern[str], *, listener: AssignmentListener | None = None
    ) -> None:
        """Subscribe to topics; the first call returns when the member has joined its group, later calls immediately.

        :param topics: names, or a pattern that is matched against the whole names of existing and new topics. They
            replace the previous topics.
        :param listener: notified of assigned and revoked partitions after the consumer itself has handled the change.
        :raise ValueError: the consumer has no group, or partitions were assigned explicitly.
        :raise ClientError: the group rejects this member.
        """
        self._flow.check_open()
        if self._options.group is None:
            raise ValueError("subscribe requires a group_id")
        if self._subscription is None:
            if self._flow.states:
                raise ValueError("partitions were already assigned with assign()")
            self._subscription = Subscription(self._cluster, self._options, self._flow, self._commits)
        await self._subscription.begin(topics, listener)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(self._flow.states)

    @property
    def identity(self) -> GroupIdentity:
        """The consumer's identity in its group, for ``Producer.send_offsets``.

        :raise ValueError: the consumer has no group.
        """
        return self._commits.identity

    @property
    def current_identity(self) -> GroupIdentity | None:
        """The current identity in the group, even while lost partitions are still processed; None if not joined."""
        membership = self._commits.membership
        return None if membership is None else membership.identity

    # --- records ---

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Yield all records until the consumer is closed; records that are available are yielded without suspending.

        :raise ClientError: a partition failed; a new iteration retries it.
        """
        await self._begin()
        flow = self._flow
        while (cursor := await flow.take(flow.delivery.cursor)) is not None:
            for record in cursor.remaining:
                yield record

    async def batches(self) -> AsyncIterator[ConsumedBatch]:
        """Yield all records in batches until the consumer is closed.

        :raise ClientError: a partition failed; a new iteration retries it.
        """
        await self._begin()
        flow = self._flow
        while (batch := await flow.take(flow.delivery.batch)) is not None:
            yield batch

    async def poll(self, timeout_s: float = 1.0, records_max: int = RECORDS_MAX) -> list[ConsumedBatch]:
        """Return the available records, possibly of several partitions.

        :param timeout_s: maximum time to wait for records.
        :param records_max: maximum number of records.
        :return: batches of records; empty after the timeout.
        :raise ConsumerClosed: the consumer is closed.
        :raise ClientError: a partition failed; the next call retries it.
        """
        await self._begin()
        self._flow.check_open()
        batch = self._flow.delivery.batch
        found = await self._flow.take(lambda: batch(records_max), timeout_s)
        if found is None:
            self._flow.check_open()
            return []
        batches, remaining = [found], records_max - len(found)
        while remaining > 0 and self._flow.error is None and (more := batch(remaining, may_fail=False)) is not None:
            batches.append(more)
            remaining -= len(more)
        return batches

    async def run(
        self,
        handler: RecordHandler | BatchHandler,
        *,
        concurrency: Concurrency | int = Concurrency.PARTITION,
        by: Literal["record", "batch"] = "record",
    ) -> None:
        """Call a handler with all records until ``stop`` or ``close`` is called; return when its calls have completed.

        The records of one partition are processed in order; partitions are processed concurrently.  Automatic commits
        include a record once its handler has completed.

        :param handler: awaited with a record or a batch.
        :param concurrency: maximum number of partitions processed concurrently.
        :raise ValueError: another run is in progress.
        :raise Exception: a handler failed; raised after the other handlers have completed.  The record of the failed
            handler is delivered again.
        """
        await self._begin()
        self._flow.check_open()
        if self._run is not None:
            raise ValueError("another run is in progress")
        run = self._run = HandlerRun(self._flow, handler, concurrency, by)
        try:
            await run.run()
        finally:
            self._run = None

    def stop(self) -> None:
        """End ``run``; may be called by a handler."""
        if self._run is not None:
            self._run.stop()

    # --- positions ---

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop delivering the records of partitions until ``resume``; fetched records are kept while memory allows.

        :raise ValueError: a partition is not assigned; also raised by ``resume``, ``seek`` and ``position``.
        """
        self._flow.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume delivery of the records of partitions."""
        self._flow.resume(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return frozenset(key for key, state in self._flow.states.items() if state.is_paused)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Move the position of a partition.

        :param offset: offset of the next record, or ``EARLIEST`` or ``LATEST``.
        """
        self._flow.check_open()
        begin = CommittedOffset(offset)
        if offset in (EARLIEST, LATEST):
            self._flow.find(partition)
            begin = (await self._starts({partition: offset}))[partition]
        elif offset < 0:
            raise ValueError(f"{offset} is not a valid offset")
        self._flow.begin_at(partition, begin.offset)

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record; None until the committed offset is known."""
        return self._flow.find(partition).position

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The known positions."""
        positions = {key: state.position for key, state in self._flow.states.items()}
        return {key: position for key, position in positions.items() if position is not None}

    async def lag(self) -> dict[TopicPartition, int]:
        """Return, for each partition with a known position, the number of offsets between its position and its end."""
        ends = await self.end_offsets(self.positions)
        return {key: max(0, end - self.positions[key]) for key, end in ends.items() if key in self.positions}

    async def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, TimedOffset | None]:
        """Return the offset and timestamp of each partition's first record at or after a time; None if there is none.

        :param times: times by partition, in milliseconds since 1970.
        :raise ClientError: a leader did not respond, or a partition does not exist.
        """
        found = await offsets_by_time(self._cluster, times, self._options.isolation)
        return {key: timed if timed.offset >= 0 else None for key, timed in found.items()}

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offsets of the partitions."""
        return await self._offsets(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks of the partitions or, with ``READ_COMMITTED``, their last stable offsets."""
        return await self._offsets(partitions, LATEST)

    async def _offsets(self, partitions: Iterable[TopicPartition], time: int) -> dict[TopicPartition, int]:
        found = await offsets_by_time(self._cluster, dict.fromkeys(partitions, time), self._options.isolation)
        return {key: timed.offset for key, timed in found.items()}

    # --- commits ---

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit offsets.

        :param offsets: offsets of the next records to process; None commits all delivered records as processed.
        :raise CommitFailed: this member no longer owns the partitions.
        :raise ClientError: the coordinator did not respond, or rejected the request.
        """
        await self._commits.commit(offsets)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's committed offsets; partitions without one are omitted."""
        return dict(await self._committed(list(partitions)))

    async def _committed(self, keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        return await self._commits.committed(keys)


def _initial_state(key: TopicPartition, begin: CommittedOffset) -> PartitionState:
    state = PartitionState(key)
    state.begin_at(begin.offset, begin.leader_epoch)
    return state
