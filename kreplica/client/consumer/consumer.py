"""``Consumer``: records out of a cluster."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Literal, Self

from kreplica.client.cluster import Cluster
from kreplica.client.consumer.committing import Commits
from kreplica.client.consumer.consume_flow import Flow
from kreplica.client.consumer.handler_run import BatchHandler, RecordHandler, Run
from kreplica.client.consumer.options import Concurrency, ConsumerOptions, OffsetReset
from kreplica.client.consumer.position_validation import RESET_TIMES
from kreplica.client.consumer.positions import Reading
from kreplica.client.consumer.records import ConsumedBatch, ConsumedRecord
from kreplica.client.consumer.subscription import Subscription
from kreplica.client.group.membership import AssignmentListener
from kreplica.client_core.offset_queries import offsets_by_time
from kreplica.client_core.offsets import EARLIEST, LATEST, CommittedOffset, GroupIdentity, TimedOffset
from kreplica.model import TopicPartition

Offsets = Mapping[TopicPartition, int | CommittedOffset]

RECORDS_MAX = 1000
"""That ``poll`` gives unless it is told otherwise."""


class Consumer:
    """Reads partitions, those it is told (``assign``) or those that its group gives it (``subscribe``).

    An asynchronous context manager, or ``close`` it.  Records come by iteration (``async for record in consumer``), by
    batches (``async for batch in consumer.batches()``), by ``poll``, or go to a handler (``run``); one of these at a
    time.  What was handed out counts as done when the next is asked for: that is what is committed by itself.

    :param topics: to subscribe to, names or a pattern; without a group all their partitions are read.
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
        self._flow = Flow(cluster, self._options, self._committed)
        self._commits = Commits(cluster, self._options, self._flow)
        self._subscription: Subscription | None = None
        self._run: Run | None = None

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not GeneratorExit:
            await self.close()

    async def _begin(self) -> None:
        """Read the topics that were given when this was made."""
        topics, self._topics = self._topics, None
        if topics is None:
            return
        if self._options.group is not None:
            await self.subscribe(topics)
        elif isinstance(topics, re.Pattern):
            raise ValueError("a pattern needs a group")
        else:
            views = [await self._cluster.find_topic(topic) for topic in topics]
            await self.assign(TopicPartition(view.name, each.partition) for view in views for each in view.partitions)

    async def close(self) -> None:
        """Let handlers finish with what they have, commit what was gone past, leave the group, and end all."""
        if self._flow.closing:
            return
        self._flow.closing = True
        self._flow.changed.fire()
        try:
            if self._run is not None:
                await self._run.ended(self._options.close_timeout_s)
            if self._subscription is not None:
                await self._subscription.stop()
            else:
                await self._commits.last()
        except GeneratorExit:
            raise  # dropped with its host: nothing more can be waited for
        except BaseException:
            await self._end()
            raise
        await self._end()

    async def _end(self) -> None:
        self._commits.close()
        await self._flow.close()

    # --- what is read ---

    async def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """Read these partitions, and no others, from these offsets on; those that are read already go on otherwise.

        :param partitions: offsets, or ``EARLIEST`` or ``LATEST``; without an offset it is where the group committed, or
            what ``offset_reset`` says.
        :raise ClientError: an offset is not found in time, or there is no such partition; nothing has changed then.
        """
        self._flow.check_open()
        if self._subscription is not None:
            raise ValueError("the group says what is read")
        given = partitions if isinstance(partitions, Mapping) else {}
        keys = list(partitions)
        begins = await self._begins({key: given[key] for key in keys if key in given})
        missing = [key for key in keys if key not in given and key not in self._flow.readings]
        begins |= await self._begins_without(missing)
        self._flow.check_open()
        self._flow.drop([key for key in self._flow.readings if key not in keys or key in given])
        self._flow.add([_reading(key, begins[key]) for key in keys if key in begins])
        self._commits.begin()

    async def _begins(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, CommittedOffset]:
        times = {key: offset for key, offset in offsets.items() if offset in (EARLIEST, LATEST)}
        found = await offsets_by_time(self._cluster, times, self._options.isolation) if times else {}
        return {key: CommittedOffset(found[key].offset if key in found else offsets[key]) for key in offsets}

    async def _begins_without(self, keys: list[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        committed = await self._committed(keys) if keys and self._options.group is not None else {}
        time = RESET_TIMES.get(OffsetReset(self._options.offset_reset))
        rest = [key for key in keys if key not in committed]
        if rest and time is None:
            raise ValueError(f"where to begin in {rest[0]} is not known, and offset_reset is to fail")
        return {**committed, **await self._begins(dict.fromkeys(rest, time or 0))}

    async def subscribe(
        self, topics: Iterable[str] | re.Pattern[str], *, listener: AssignmentListener | None = None
    ) -> None:
        """Read what the group gives this member of some topics; returns when it has joined.

        :param topics: names, or a pattern that whole names match; topics that are made later are found.  They replace
            what was subscribed to before.
        :param listener: is told of what is given and taken, after this consumer has seen to it.
        :raise ValueError: there is no group, or partitions were assigned.
        :raise ClientError: the group refuses this member for good.
        """
        self._flow.check_open()
        if self._options.group is None:
            raise ValueError("to subscribe, a group_id is needed")
        if self._subscription is None:
            if self._flow.readings:
                raise ValueError("partitions were assigned already")
            self._subscription = Subscription(self._cluster, self._options, self._flow, self._commits)
        await self._subscription.begin(topics, listener)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return frozenset(self._flow.readings)

    @property
    def identity(self) -> GroupIdentity:
        """As what it acts for its group: for ``Producer.send_offsets``.

        :raise ValueError: there is no group.
        """
        return self._commits.identity

    # --- records ---

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """All records, one by one, until the consumer is closed; what is there comes without a suspension.

        :raise ClientError: a partition cannot go on; whoever iterates again has it tried again.
        """
        await self._begin()
        flow = self._flow
        while (handed := await flow.take(flow.outlet.handed)) is not None:
            for record in handed.rest:
                yield record

    async def batches(self) -> AsyncIterator[ConsumedBatch]:
        """All records, batch by batch, until the consumer is closed.

        :raise ClientError: as by iteration.
        """
        await self._begin()
        flow = self._flow
        while (batch := await flow.take(flow.outlet.batch)) is not None:
            yield batch

    async def poll(self, timeout_s: float = 1.0, records_max: int = RECORDS_MAX) -> list[ConsumedBatch]:
        """What there is, of several partitions maybe.

        :param timeout_s: how long to wait for some.
        :param records_max: at most so many records.
        :return: nothing, where none came in time.
        :raise ConsumerClosed: it is closed.
        :raise ClientError: a partition cannot go on; the next call has it tried again.
        """
        await self._begin()
        self._flow.check_open()
        batch = self._flow.outlet.batch
        found = await self._flow.take(lambda: batch(records_max), timeout_s)
        if found is None:
            self._flow.check_open()
            return []
        batches, left = [found], records_max - len(found)
        while left > 0 and self._flow.error is None and (more := batch(left, may_fail=False)) is not None:
            batches.append(more)
            left -= len(more)
        return batches

    async def run(
        self,
        handler: RecordHandler | BatchHandler,
        *,
        concurrency: Concurrency | int = Concurrency.PARTITION,
        by: Literal["record", "batch"] = "record",
    ) -> None:
        """Give all records to a handler, until ``stop`` or ``close``; then it finishes with what it has.

        Each partition's records are given in order, the next when the handler is done with the one before; partitions
        are worked on at the same time.  What the handler was done with may be committed.

        :param handler: is awaited with a record, or with a batch.
        :param concurrency: how many partitions at the same time.
        :raise ValueError: another run is under way.
        :raise Exception: what a handler raised, after the others have finished with what they have; that record was not
            gone past, and is handed out again.
        """
        await self._begin()
        self._flow.check_open()
        if self._run is not None:
            raise ValueError("the consumer runs already")
        run = self._run = Run(self._flow, handler, concurrency, by)
        try:
            await run.run()
        finally:
            self._run = None

    def stop(self) -> None:
        """Let ``run`` end; may be called by a handler."""
        if self._run is not None:
            self._run.stop()

    # --- positions ---

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing more of these partitions until ``resume``; what was fetched is kept while there is room.

        :raise ValueError: one is not assigned; the same holds for what follows.
        """
        self._flow.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out records of these partitions again."""
        self._flow.resume(partitions)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(key for key, reading in self._flow.readings.items() if reading.is_paused)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from elsewhere.

        :param offset: or ``EARLIEST`` or ``LATEST``.
        """
        self._flow.check_open()
        begin = CommittedOffset(offset)
        if offset in (EARLIEST, LATEST):
            self._flow.find(partition)
            begin = (await self._begins({partition: offset}))[partition]
        elif offset < 0:
            raise ValueError(f"{offset} is not an offset")
        self._flow.begin_at(partition, begin.offset)

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record that is handed out; None where the group has to be asked yet."""
        return self._flow.find(partition).position

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The positions that are known."""
        positions = {key: reading.position for key, reading in self._flow.readings.items()}
        return {key: position for key, position in positions.items() if position is not None}

    async def lag(self) -> dict[TopicPartition, int]:
        """How many offsets lie between the positions and the ends, of partitions whose positions are known."""
        ends = await self.end_offsets(self.positions)
        return {key: max(0, end - self.positions[key]) for key, end in ends.items() if key in self.positions}

    async def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, TimedOffset | None]:
        """The first record of each partition that is not older than a time; None where none is that young.

        :param times: milliseconds since 1970.
        :raise ClientError: some leader does not answer, or there is no such partition; also of what follows.
        """
        found = await offsets_by_time(self._cluster, times, self._options.isolation)
        return {key: timed if timed.offset >= 0 else None for key, timed in found.items()}

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where logs begin."""
        return await self._offsets(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where what may be read ends; with ``READ_COMMITTED`` before the first transaction that is open."""
        return await self._offsets(partitions, LATEST)

    async def _offsets(self, partitions: Iterable[TopicPartition], time: int) -> dict[TopicPartition, int]:
        found = await offsets_by_time(self._cluster, dict.fromkeys(partitions, time), self._options.isolation)
        return {key: timed.offset for key, timed in found.items()}

    # --- commits ---

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit how far partitions were read.

        :param offsets: of the next records to read; None: all that was handed out counts as done.
        :raise CommitFailed: this member does not own the partitions any more.
        :raise ClientError: the coordinator does not answer, or refuses.
        """
        await self._commits.commit(offsets)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """What the group committed; without partitions for which it did not."""
        return dict(await self._committed(list(partitions)))

    async def _committed(self, keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset]:
        return await self._commits.committed(keys)


def _reading(key: TopicPartition, begin: CommittedOffset) -> Reading:
    reading = Reading(key)
    reading.begin_at(begin.offset, begin.leader_epoch)
    return reading
