"""Fetch (key 1): read from partitions in order until the limits are reached; wait where too little is there."""

from __future__ import annotations

from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_EPOCH, TopicPartition
from kreplica.replication import READ_COMMITTED, Partition, Partitions, Waiting
from kreplica.runtime import Reactor
from kreplica.server.answers import NO_LEADER_HINT
from kreplica.server.fetch_sessions import NO_DIVERGENCE, NO_SESSION, FetchContext, FetchSessions, Wanted
from kreplica.server.metadata import MetadataCache
from kreplica.server.request import Request

TOPIC_IDS_FROM = 13
"""From this version on topics are named by id."""

Row = dict[str, Any]

NO_SNAPSHOT = {"end_offset": -1, "epoch": -1}


class Fetch:
    """:param bytes_max: ``fetch.max.bytes``, the most that one answer may hold whatever the client asks."""

    def __init__(
        self,
        reactor: Reactor,
        partitions: Partitions,
        metadata: MetadataCache,
        sessions: FetchSessions,
        bytes_max: int,
    ) -> None:
        self._reactor = reactor
        self.partitions = partitions
        self.metadata = metadata
        self._sessions = sessions
        self._bytes_max = bytes_max

    def __call__(self, request: Request) -> None:
        body = request.body
        try:
            context = self._sessions.begin(
                body.get("session_id", 0),
                body.get("session_epoch", -1),
                body["topics"],
                body.get("forgotten_topics_data") or (),
                by_id=request.version >= TOPIC_IDS_FROM,
                now_s=self._reactor.seconds(),
            )
        except KafkaError as error:
            request.answer(_answer(int(error.code), NO_SESSION, []))
            return
        reading = _Reading(self, request, context, min(body.get("max_bytes", self._bytes_max), self._bytes_max))
        wait_s = body["max_wait_ms"] / 1000
        if reading.read_all() or wait_s <= 0:
            reading.answer()
        else:
            reading.wait(self._reactor, wait_s)


class _Reading:
    """One fetch being answered: a row per partition, read again when its partition changes while it waits."""

    __slots__ = (
        "_by_id",
        "_bytes_max",
        "_context",
        "_failed",
        "_fetch",
        "_isolation",
        "_min_bytes",
        "_partitions",
        "_request",
        "_rows",
        "_size",
        "_sizes",
    )

    def __init__(self, fetch: Fetch, request: Request, context: FetchContext, bytes_max: int) -> None:
        self._fetch = fetch
        self._request = request
        self._context = context
        self._bytes_max = bytes_max
        self._isolation = request.body.get("isolation_level", 0)
        # Nobody waits for more than one answer may hold.
        self._min_bytes = min(request.body["min_bytes"], bytes_max)
        self._by_id = request.version >= TOPIC_IDS_FROM
        self._rows: list[Row] = []
        self._sizes: list[int] = []
        self._partitions: dict[Partition, list[int]] = {}
        self._size = 0
        self._failed = False

    def read_all(self) -> bool:
        """Read every partition once; whether the fetch can be answered now."""
        for index, wanted in enumerate(self._context.wanted):
            row, size, partition = self._read(wanted)
            self._rows.append(row)
            self._sizes.append(size)
            self._size += size
            if partition is not None:
                self._partitions.setdefault(partition, []).append(index)
        return self._is_enough()

    def _is_enough(self) -> bool:
        return self._failed or self._size >= self._min_bytes or not self._rows

    def wait(self, reactor: Reactor, timeout_s: float) -> None:
        waiting = Waiting(reactor, self._partitions, timeout_s, self._look, self.answer)
        self._request.on_abandoned(waiting.abandon)

    def _look(self, changed: set[Partition]) -> bool:
        for partition in changed:
            for index in self._partitions.get(partition, ()):
                self._size -= self._sizes[index]
                row, size, _ = self._read(self._context.wanted[index])
                self._rows[index] = row
                self._sizes[index] = size
                self._size += size
        if self._is_enough():
            self.answer()
            return True
        return False

    def answer(self) -> None:
        session_id, kept = self._context.finish(self._rows)
        responses: list[dict[str, Any]] = []
        last: Wanted | None = None
        for wanted, row in kept:
            if last is None or wanted.topic != last.topic or wanted.topic_id != last.topic_id:
                responses.append({"topic": wanted.topic, "topic_id": wanted.topic_id, "partitions": []})
                last = wanted
            responses[-1]["partitions"].append(row)
        self._request.answer(_answer(0, session_id, responses))

    # --- one partition -----------------------------------------------------------------------------------------------

    def _read(self, wanted: Wanted) -> tuple[Row, int, Partition | None]:
        try:
            return self._read_partition(wanted)
        except KafkaError as error:
            self._failed = True
            return _error_row(wanted.partition, error), 0, None

    def _read_partition(self, wanted: Wanted) -> tuple[Row, int, Partition]:
        topic = wanted.topic
        if topic is None or self._by_id:
            topic = self._fetch.metadata.name_of(wanted.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self._fetch.partitions.get(TopicPartition(topic, wanted.partition))
        if partition is None:
            raise self._fetch.partitions.unknown(TopicPartition(topic, wanted.partition))
        if self._by_id and partition.topic_id != wanted.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        partition.check_leader(wanted.current_leader_epoch)
        row = _row(
            wanted.partition,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.log.last_stable_offset(partition.high_watermark),
            log_start_offset=partition.log.log_start_offset,
        )
        if wanted.last_fetched_epoch != NO_EPOCH:
            diverging = _diverging(partition, wanted)
            if diverging is not None:
                row["diverging_epoch"] = diverging
                self._failed = True  # the client must hear of it at once
                return row, 0, partition
        space = self._bytes_max - self._size
        slice_ = partition.read(
            wanted.fetch_offset,
            max(min(wanted.bytes_max, space), 0),
            isolation=self._isolation,
            at_least_one=self._size == 0,
        )
        if slice_.size:
            row["records"] = slice_
        if self._isolation == READ_COMMITTED:
            row["aborted_transactions"] = _aborted(partition, wanted.fetch_offset) if slice_.size else []
        return row, slice_.size, partition


def _aborted(partition: Partition, first_offset: int) -> list[dict[str, int]]:
    """The aborted transactions that a consumer must leave out of what it is sent (and perhaps later ones)."""
    return [
        {"producer_id": aborted.producer_id, "first_offset": aborted.first_offset}
        for aborted in partition.log.aborted_transactions(first_offset, partition.visible_end(READ_COMMITTED))
    ]


def _answer(error_code: int, session_id: int, responses: list[Row]) -> Row:
    return {
        "throttle_time_ms": 0,
        "error_code": error_code,
        "session_id": session_id,
        "responses": responses,
        "node_endpoints": (),
    }


def _diverging(partition: Partition, wanted: Wanted) -> dict[str, int] | None:
    """Where the client's history leaves this leader's, where it does (KIP-595)."""
    epoch, end_offset = partition.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return {"epoch": epoch, "end_offset": end_offset}
    return None


def _error_row(partition: int, error: KafkaError) -> Row:
    return _row(partition, error_code=int(error.code))


def _row(
    partition: int,
    *,
    error_code: int = 0,
    high_watermark: int = -1,
    last_stable_offset: int = -1,
    log_start_offset: int = -1,
) -> Row:
    """An answer for one partition with all its fields: one that is complete is built twice as fast."""
    return {
        "partition_index": partition,
        "error_code": error_code,
        "high_watermark": high_watermark,
        "last_stable_offset": last_stable_offset,
        "log_start_offset": log_start_offset,
        "diverging_epoch": NO_DIVERGENCE,
        "current_leader": NO_LEADER_HINT,
        "snapshot_id": NO_SNAPSHOT,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": b"",
    }


