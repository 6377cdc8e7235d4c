"""Produce (key 0): append batches; answer at once, or when those replicas have them that the client asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import Partition, Partitions, Role, Waiting
from kreplica.runtime import Reactor
from kreplica.server.answers import NO_LEADER_HINT, LeaderHints
from kreplica.server.metadata import MetadataCache
from kreplica.server.request import Request
from kreplica.wire.batches import codec_of, is_transactional
from kreplica.wire.compression import Codec

ALL_IN_SYNC = -1
NO_ANSWER = 0
LEADER_ONLY = 1

ZSTD_FROM = 7
"""Clients that speak only older versions cannot read zstd (KIP-110)."""

Row = dict[str, Any]


class Produce:
    """One partition's failure is that partition's answer: the others are appended.

    :param metadata: where a producer is sent whose partition another broker leads (KIP-951).
    """

    def __init__(
        self, reactor: Reactor, partitions: Partitions, metadata: MetadataCache, wall_clock_ms: Callable[[], int]
    ) -> None:
        self._reactor = reactor
        self._partitions = partitions
        self._metadata = metadata
        self._wall_clock_ms = wall_clock_ms

    def __call__(self, request: Request) -> None:
        body = request.body
        acks = body["acks"]
        now_ms = self._wall_clock_ms()
        refusal = _refusal(body, acks)
        zstd = request.version >= ZSTD_FROM
        pending: list[_Pending] = []
        failed: KafkaError | None = None
        responses = []
        for topic in body["topic_data"]:
            name = topic["name"]
            rows = []
            for data in topic["partition_data"]:
                index = data["index"]
                key = TopicPartition(name, index)
                try:
                    if refusal is not None:
                        raise refusal
                    rows.append(self._append(key, data["records"], acks, now_ms, pending, zstd=zstd))
                except KafkaError as error:
                    failed = error
                    rows.append(_error_row(index, error))
            responses.append({"name": name, "partition_responses": rows})
        if acks == NO_ANSWER:
            # Nobody would see an error: Kafka's clients notice one by the connection being closed.
            if failed is not None:
                request.abort(f"produce with acks=0 failed: {failed}")
            else:
                request.answer_nothing()
        elif pending:
            request.body = {}  # the records are in the log: the buffer that the request came in may go
            _WaitingProduce(
                self._reactor, request, pending, body["timeout_ms"] / 1000, lambda: self._answer(request, responses)
            )
        elif failed is not None:
            self._answer(request, responses)
        else:
            request.answer(_body(responses))

    def _answer(self, request: Request, responses: list[Row]) -> None:
        """Answer with errors, and where to go instead."""
        hints = LeaderHints(self._partitions, self._metadata, request.connection.listener)
        for topic in responses:
            for row in topic["partition_responses"]:
                if row["error_code"]:
                    key = TopicPartition(topic["name"], row["index"])
                    row["current_leader"] = hints.leader_of(key, ErrorCode.of(row["error_code"]))
        request.answer(_body(responses, hints.endpoints()))

    def _append(
        self,
        key: TopicPartition,
        records: memoryview | None,
        acks: int,
        now_ms: int,
        pending: list[_Pending],
        *,
        zstd: bool,
    ) -> Row:
        partition = self._partitions.get(key)
        if partition is None:
            raise self._partitions.unknown(key)
        if records is None or len(records) == 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
        if is_transactional(records):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "this broker has no transactions yet")
        if not zstd and codec_of(records) == Codec.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {ZSTD_FROM} or later")
        result = partition.append(records, now_ms, all_in_sync=acks == ALL_IN_SYNC)
        row = {
            "index": key.partition,
            "error_code": 0,
            "base_offset": result.base_offset,
            "log_append_time_ms": result.log_append_time_ms,
            "log_start_offset": partition.log.log_start_offset,
            # All fields, also those that stay as they are: an answer that is complete is built twice as fast.
            "record_errors": (),
            "error_message": None,
            "current_leader": NO_LEADER_HINT,
        }
        if not _is_reached(partition, result.last_offset + 1, acks):
            pending.append(_Pending(partition, result.last_offset + 1, acks, row))
        return row


def _is_reached(partition: Partition, offset: int, acks: int) -> bool:
    """Whether all below an offset may be acknowledged.

    With ``acks=all`` that takes all in-sync replicas; with ``acks=1`` only this one, which has it at once unless the
    topic's ``flush.messages=1`` asks for a sync first.
    """
    if acks == ALL_IN_SYNC:
        return partition.is_committed(offset)
    return acks == NO_ANSWER or partition.is_kept(offset)


class _Pending:
    """One partition's batch that may not be acknowledged yet.

    A new leader epoch is no reason to give up: as long as this broker leads without a break the batch stays where it
    is, and a producer that is not idempotent would write it again.
    """

    __slots__ = ("_tenures_over", "acks", "offset", "partition", "row")

    def __init__(self, partition: Partition, offset: int, acks: int, row: Row) -> None:
        self.partition = partition
        self._tenures_over = partition.tenures_over
        self.offset = offset
        self.acks = acks
        self.row = row

    def is_over(self) -> bool:
        """Whether it may be, or never will be by this leader (the row says so then)."""
        partition = self.partition
        if partition.tenures_over != self._tenures_over:
            offline = partition.role is Role.OFFLINE
            _fail(self.row, ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        if not _is_reached(partition, self.offset, self.acks):
            return False
        if self._lacks_replicas:
            _fail(self.row, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def expire(self) -> None:
        """The time is up: it may be acknowledged later, but by then nobody asks."""
        if not self.is_over():
            lacks = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            _fail(self.row, lacks if self._lacks_replicas else ErrorCode.REQUEST_TIMED_OUT)

    @property
    def _lacks_replicas(self) -> bool:
        partition = self.partition
        return self.acks == ALL_IN_SYNC and len(partition.leadership.isr) < partition.in_sync_required


class _WaitingProduce:
    """A produce that may not be acknowledged yet, for at least one of its partitions."""

    def __init__(
        self,
        reactor: Reactor,
        request: Request,
        pending: list[_Pending],
        timeout_s: float,
        answer: Callable[[], None],
    ) -> None:
        self._pending = pending
        self._answer = answer
        waiting = Waiting(reactor, [p.partition for p in pending], timeout_s, self._look, self._expire)
        request.on_abandoned(waiting.abandon)

    def _look(self, changed: set[Partition]) -> bool:
        self._pending = [p for p in self._pending if p.partition not in changed or not p.is_over()]
        if not self._pending:
            self._answer()
        return not self._pending

    def _expire(self) -> None:
        for pending in self._pending:
            pending.expire()
        self._answer()


def _refusal(body: dict[str, Any], acks: int) -> KafkaError | None:
    """What is wrong with the request as a whole."""
    if acks not in (ALL_IN_SYNC, NO_ANSWER, LEADER_ONLY):
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1, 0 or 1")
    if body.get("transactional_id") is not None:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "this broker has no transactions yet")
    return None


def _body(responses: list[Row], endpoints: Sequence[Row] = ()) -> Row:
    return {"responses": responses, "throttle_time_ms": 0, "node_endpoints": endpoints}


def _error_row(index: int, error: KafkaError) -> Row:
    return {
        "index": index,
        "error_code": int(error.code),
        "base_offset": -1,
        "log_append_time_ms": -1,
        "log_start_offset": -1,
        "record_errors": (),
        "error_message": error.message or None,
        "current_leader": NO_LEADER_HINT,
    }


def _fail(row: Row, code: ErrorCode) -> None:
    row["error_code"] = int(code)
    row["base_offset"] = -1
