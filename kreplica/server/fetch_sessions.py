"""Fetch sessions (KIP-227): what a client fetches is kept here, so that its requests and answers name only changes."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_EPOCH, ZERO_UUID

NO_SESSION = 0
NO_DIVERGENCE = {"epoch": -1, "end_offset": -1}
"""What an answer says of a partition whose history agrees with the client's (KIP-595)."""

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
PARTITIONS_MAX = 100_000
"""A session may hold so many; who fetches more names them in each request."""
EVICTION_SECONDS = 120.0
"""A session that was not used for so long may give its place to a new one."""

Key = tuple[str | None, UUID, int]
Row = dict[str, Any]


class Wanted:
    """One partition that a client fetches, and what it was last told of it (inside a session)."""

    __slots__ = (
        "bytes_max",
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "partition",
        "told",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str | None, topic_id: UUID, row: Row) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition: int = row["partition"]
        self.told: tuple[int, int] | None = None
        self.ask(row)

    def ask(self, row: Row) -> None:
        """Take over what the client asks now."""
        self.fetch_offset: int = row["fetch_offset"]
        self.bytes_max: int = row["partition_max_bytes"]
        self.current_leader_epoch: int = row.get("current_leader_epoch", NO_EPOCH)
        self.last_fetched_epoch: int = row.get("last_fetched_epoch", NO_EPOCH)

    @property
    def key(self) -> Key:
        return (self.topic, self.topic_id, self.partition)

    def is_news(self, row: Row) -> bool:
        """Whether an answer inside a session has to name this partition."""
        told = (row["high_watermark"], row["log_start_offset"])
        diverges = row["diverging_epoch"] is not NO_DIVERGENCE
        news = bool(row["error_code"] or row["records"] or told != self.told or diverges)
        # An error is told again and again, until it is gone and the figures are told too.
        self.told = None if row["error_code"] else told
        return news


class FetchContext:
    """One fetch, inside a session or not."""

    def __init__(self, wanted: list[Wanted], session: _Session | None, *, incremental: bool) -> None:
        self.wanted = wanted
        self._session = session
        self._incremental = incremental

    def finish(self, rows: list[Row]) -> tuple[int, list[tuple[Wanted, Row]]]:
        """The session id to answer, and the partitions that the answer names."""
        pairs = list(zip(self.wanted, rows, strict=True))
        if self._session is None:
            return NO_SESSION, pairs
        news = [pair for pair in pairs if pair[0].is_news(pair[1])]
        self._session.served(wanted for wanted, row in news if row["records"])
        return self._session.session_id, news if self._incremental else pairs


class _Session:
    __slots__ = ("by_id", "epoch", "partitions", "session_id", "used_at_s")

    def __init__(self, session_id: int, wanted: Iterable[Wanted], *, by_id: bool, now_s: float) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.by_id = by_id
        self.used_at_s = now_s
        self.partitions: OrderedDict[Key, Wanted] = OrderedDict((w.key, w) for w in wanted)

    def served(self, wanted: Iterable[Wanted]) -> None:
        """Those that got data go to the end, so that the limit of one answer starves nobody."""
        for one in list(wanted):
            if one.key in self.partitions:
                self.partitions.move_to_end(one.key)


class FetchSessions:
    """All sessions of one broker.

    :param slots_max: ``max.incremental.fetch.session.cache.slots``; where all are taken and in use, clients are
        answered without a session.
    """

    def __init__(self, rng: random.Random, slots_max: int) -> None:
        self._random = rng
        self._slots_max = slots_max
        self._sessions: OrderedDict[int, _Session] = OrderedDict()

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
    ) -> FetchContext:
        """What a request asks for.

        :raise KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(session_id, None)
            wanted = _wanted(topics)
            session = self._open(wanted, by_id, now_s) if epoch == INITIAL_EPOCH and wanted else None
            return FetchContext(wanted, session, incremental=False)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._change(session, topics, forgotten)
        if len(session.partitions) > PARTITIONS_MAX:
            del self._sessions[session_id]
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_at_s = now_s
        self._sessions.move_to_end(session_id)
        return FetchContext(list(session.partitions.values()), session, incremental=True)

    def _open(self, wanted: list[Wanted], by_id: bool, now_s: float) -> _Session | None:
        if len(wanted) > PARTITIONS_MAX:
            return None
        if len(self._sessions) >= self._slots_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_s - oldest.used_at_s < EVICTION_SECONDS:
                return None
            del self._sessions[oldest.session_id]
        session_id = self._random.randrange(1, 2**31)
        while session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = _Session(session_id, wanted, by_id=by_id, now_s=now_s)
        self._sessions[session_id] = session
        return session

    @staticmethod
    def _change(session: _Session, topics: Iterable[Row], forgotten: Iterable[Row]) -> None:
        for topic, topic_id, row in _rows(topics):
            known = session.partitions.get((topic, topic_id, row["partition"]))
            if known is None:
                wanted = Wanted(topic, topic_id, row)
                session.partitions[wanted.key] = wanted
            else:
                known.ask(row)
        for gone in forgotten:
            for partition in gone["partitions"]:
                session.partitions.pop((gone.get("topic"), gone.get("topic_id", ZERO_UUID), partition), None)


def _rows(topics: Iterable[Row]) -> Iterator[tuple[str | None, UUID, Row]]:
    for topic in topics:
        for row in topic["partitions"]:
            yield topic.get("topic"), topic.get("topic_id", ZERO_UUID), row


def _wanted(topics: Iterable[Row]) -> list[Wanted]:
    return [Wanted(topic, topic_id, row) for topic, topic_id, row in _rows(topics)]
