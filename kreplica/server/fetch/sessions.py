"""Fetch sessions (KIP-227): requests and responses name only the partitions that changed.

Reads are incremental too: a partition without new data is read again when it changes, so that the cost of a fetch
depends on the changes since the last one, not on the number of partitions.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import ZERO_UUID
from kreplica.replication import Partition
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.fetch.partition import FetchPartition, Key, Watch

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
CHANGING = 2**31
"""Epoch of a session while a large request changes it: larger than the epoch of any request."""
PARTITIONS_MAX = 100_000
"""Maximum partitions per session; a client that fetches more partitions gets no session."""
SESSION_PARTITION_BYTES = 700
"""Estimated memory of one partition in a session, for metrics."""
EVICTION_SECONDS = 120.0
"""Idle time after which a session may be evicted for a new one."""

Row = dict[str, Any]


class FetchContext:
    """Fetch with or without a session.

    :ivar to_read: partitions to read, in order.
    :ivar is_full: the response contains all partitions.
    """

    def __init__(self, to_read: list[FetchPartition], session: FetchSession | None, *, is_full: bool) -> None:
        self.to_read = to_read
        self.session = session
        self.is_full = is_full

    @property
    def is_empty(self) -> bool:
        """True if no partition is fetched."""
        return not (self.to_read if self.session is None else self.session.partitions)

    def finish(self, rows: dict[FetchPartition, Row]) -> tuple[int, list[tuple[FetchPartition, Row]]]:
        """Return the session ID and the rows of the response."""
        pairs = list(rows.items())
        if self.session is None:
            return NO_SESSION, pairs
        changed = [pair for pair in pairs if pair[0].must_send(pair[1])]
        for fetch_partition, row in changed:
            if row["records"]:
                self.session.served(fetch_partition)
        return self.session.session_id, pairs if self.is_full else changed

    def includes(self, fetch_partition: FetchPartition, row: Row) -> bool:
        """Return whether a large response includes this partition; used instead of ``finish``."""
        session = self.session
        if session is None:
            return True
        must_send = fetch_partition.must_send(row)
        if must_send and row["records"]:
            session.served(fetch_partition)
        return must_send or self.is_full


class FetchSession:
    """Partitions that one client fetches.

    :ivar pending: partitions that the next fetch reads, in order: new fetch offsets, changes, and partitions for which
        the last response had no room.
    :ivar on_change: called with changed partitions while a fetch waits.
    :ivar supersede: completes the waiting fetch when the client has sent the next one.
    :ivar is_follower: the client is a broker.
    :ivar counted_partitions: number of its partitions that ``FetchSessions.partition_count`` includes.
    """

    __slots__ = (
        "by_id",
        "counted_partitions",
        "epoch",
        "is_follower",
        "on_change",
        "partitions",
        "pending",
        "session_id",
        "supersede",
        "used_at_s",
        "watch",
    )

    def __init__(
        self,
        session_id: int,
        fetch_partitions: Iterable[FetchPartition],
        *,
        by_id: bool,
        now_s: float,
        is_follower: bool,
    ) -> None:
        self.session_id = session_id
        self.is_follower = is_follower
        self.epoch = 1
        self.by_id = by_id
        self.used_at_s = now_s
        self.partitions: dict[Key, FetchPartition] = {each.key: each for each in fetch_partitions}
        self.pending: dict[FetchPartition, None] = dict.fromkeys(self.partitions.values())
        self.counted_partitions = 0
        self.watch = Watch(self._changed)
        self.on_change: Callable[[list[FetchPartition]], object] | None = None
        self.supersede: Callable[[], object] | None = None

    def settle(self, fetch_partition: FetchPartition, partition: Partition) -> None:
        """Skip a partition until it changes or its fetch offset moves."""
        self.pending.pop(fetch_partition, None)
        self.watch.add(fetch_partition, partition)

    def served(self, fetch_partition: FetchPartition) -> None:
        """Move a partition with data to the end, so that the response limit starves no partition."""
        if self.pending.pop(fetch_partition, fetch_partition) is None:
            self.pending[fetch_partition] = None

    def change(self, topics: Iterable[Row], forgotten: Iterable[Row]) -> None:
        """Add, update and remove partitions as requested."""
        for topic in topics:
            name, topic_id = topic.get("topic"), topic.get("topic_id", ZERO_UUID)
            for row in topic["partitions"]:
                fetch_partition = self.partitions.get((name, topic_id, row["partition"]))
                if fetch_partition is None:
                    fetch_partition = FetchPartition(name, topic_id, row)
                    self.partitions[fetch_partition.key] = fetch_partition
                else:
                    fetch_partition.update(row)
                    # A follower ignores rows of a response in flight for partitions that it requested again.
                    fetch_partition.may_have_missed = self.is_follower
                self.pending[fetch_partition] = None
        for topic in forgotten:
            for partition in topic["partitions"]:
                fetch_partition = self.partitions.pop(
                    (topic.get("topic"), topic.get("topic_id", ZERO_UUID), partition), None
                )
                if fetch_partition is not None:
                    self.pending.pop(fetch_partition, None)
                    self.watch.remove(fetch_partition)

    def change_in_steps(self, topics: Iterable[Row], forgotten: Iterable[Row]) -> Steps[None]:
        """Like ``change``, but in slices."""
        count = 0
        for is_forgotten, rows in ((False, topics), (True, forgotten)):
            for row in rows:
                partitions = row["partitions"]
                for start in range(0, len(partitions), STEP_ROWS):
                    part = [{**row, "partitions": partitions[start : start + STEP_ROWS]}]
                    self.change(*(((), part) if is_forgotten else (part, ())))
                    count += len(part[0]["partitions"])
                    if count >= STEP_ROWS:
                        count = 0
                        yield

    def _changed(self, fetch_partitions: list[FetchPartition]) -> None:
        self.pending.update(dict.fromkeys(fetch_partitions))
        if self.on_change is not None:
            self.on_change(fetch_partitions)


class FetchSessions:
    """All sessions of one broker.

    :param slots_max: ``max.incremental.fetch.session.cache.slots``; if all slots are in use by active
        sessions, clients get no session.
    :param partitions_max: limit for all sessions together; a quarter is reserved for followers.
    :ivar partition_count: partitions of all sessions; each takes about ``SESSION_PARTITION_BYTES``.
    :ivar rejected: number of sessions rejected or ended because all sessions together had too many partitions.
    """

    def __init__(self, rng: random.Random, slots_max: int, partitions_max: int = 1_000_000) -> None:
        self.partition_count = 0
        self.rejected = 0
        self._random = rng
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        self._client_partitions_max = partitions_max * 3 // 4
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        topics: Iterable[Row],
        forgotten: Iterable[Row],
        *,
        by_id: bool,
        now_s: float,
        is_follower: bool = False,
    ) -> FetchContext:
        """Apply a request to its session.

        :param is_follower: the client is a broker, whose sessions take precedence.
        :raise KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id != NO_SESSION:
                self._end(session_id)
            fetch_partitions = _requested_partitions(topics)
            session = None
            if epoch == INITIAL_EPOCH and self._may_open(len(fetch_partitions), is_follower=is_follower, now_s=now_s):
                session = FetchSession(
                    self._new_id(), fetch_partitions, by_id=by_id, now_s=now_s, is_follower=is_follower
                )
                self._add(session)
            return FetchContext(fetch_partitions if session is None else list(session.pending), session, is_full=True)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.supersede is not None:
            session.supersede()
        if topics or forgotten:
            session.change(topics, forgotten)
        if len(session.partitions) != session.counted_partitions:
            has_grown = len(session.partitions) > session.counted_partitions
            self._count(session)
            if has_grown and not self._has_memory(session.is_follower, 0, now_s):
                self._end(session_id)
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if len(session.partitions) > PARTITIONS_MAX:
            self._end(session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_at_s = now_s
        self._sessions.move_to_end(session_id)
        return FetchContext(list(session.pending), session, is_full=False)

    def begin_in_steps(
        self,
        session_id: int,
        epoch: int,
        topics: Iterable[Row],
        forgotten: Iterable[Row],
        *,
        by_id: bool,
        now_s: float,
        is_follower: bool,
    ) -> Steps[FetchContext]:
        """Like ``begin``, but in slices, for a request with many partitions."""
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id != NO_SESSION:
                self._end(session_id)
            # Added once complete; until then no request can name it.
            session = FetchSession(self._new_id(), (), by_id=by_id, now_s=now_s, is_follower=is_follower)
            yield from session.change_in_steps(topics, ())
            is_open = epoch == INITIAL_EPOCH and self._may_open(
                len(session.partitions), is_follower=is_follower, now_s=now_s
            )
            if is_open:
                self._add(session)
            return FetchContext(list(session.pending), session if is_open else None, is_full=True)
        open_session = self._sessions.get(session_id)
        if open_session is not None and open_session.epoch == epoch and open_session.by_id == by_id:
            if open_session.supersede is not None:
                open_session.supersede()
            open_session.epoch = CHANGING
            try:
                yield from open_session.change_in_steps(topics, forgotten)
            except GeneratorExit:
                self._end(session_id)  # the connection has closed
                raise
            open_session.epoch = epoch
        return self.begin(session_id, epoch, (), (), by_id=by_id, now_s=now_s, is_follower=is_follower)

    def withhold(self, context: FetchContext, read: Iterable[FetchPartition]) -> int:
        """Undo a fetch whose response will have no partitions, because the client is throttled.

        :param read: the partitions that were read; the next fetch of the session reads them again.
        :return: the session ID of the response; a new session is not created.
        """
        session = context.session
        if session is None or context.is_full:
            if session is not None:
                self._end(session.session_id)
            return NO_SESSION
        session.pending.update(dict.fromkeys(read))
        return session.session_id

    def _may_open(self, count: int, *, is_follower: bool, now_s: float) -> bool:
        """Return whether a session with ``count`` partitions may be opened."""
        return (
            0 < count <= PARTITIONS_MAX
            and self._has_memory(is_follower, count, now_s)
            and self._has_room(is_follower, now_s)
        )

    def _has_room(self, is_follower: bool, now_s: float) -> bool:
        """Return whether a slot is free, after evicting another session if allowed."""
        if len(self._sessions) < self._slots_max:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_s - oldest.used_at_s < EVICTION_SECONDS:
            # Without a session each fetch of a follower would name thousands of partitions.
            oldest = next((session for session in self._sessions.values() if not session.is_follower), None)
            if not is_follower or oldest is None:
                return False
        self._end(oldest.session_id)
        return True

    def _has_memory(self, is_follower: bool, added_count: int, now_s: float) -> bool:
        """Return whether the sessions may contain ``added_count`` more partitions.

        Evicts idle sessions and, for a follower, sessions of clients, in order of last use.
        """
        partitions_max = self._partitions_max if is_follower else self._client_partitions_max
        if self.partition_count + added_count <= partitions_max:
            return True
        for session in list(self._sessions.values()):
            if now_s - session.used_at_s >= EVICTION_SECONDS or (is_follower and not session.is_follower):
                self._end(session.session_id)
                if self.partition_count + added_count <= partitions_max:
                    return True
        self.rejected += 1
        return False

    def _new_id(self) -> int:
        session_id = self._random.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        return session_id

    def _add(self, session: FetchSession) -> None:
        self._sessions[session.session_id] = session
        self._count(session)

    def _count(self, session: FetchSession) -> None:
        self.partition_count += len(session.partitions) - session.counted_partitions
        session.counted_partitions = len(session.partitions)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= session.counted_partitions
            if session.supersede is not None:
                session.supersede()
            session.watch.clear()


def _requested_partitions(topics: Iterable[Row]) -> list[FetchPartition]:
    found = []
    for topic in topics:
        name, topic_id = topic.get("topic"), topic.get("topic_id", ZERO_UUID)
        found += [FetchPartition(name, topic_id, row) for row in topic["partitions"]]
    return found
