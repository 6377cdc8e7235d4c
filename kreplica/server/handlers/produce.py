"""Produce (key 0): append batches; answer at once, or when those replicas have them that the client asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import Partitions
from kreplica.runtime import Reactor
from kreplica.server.acknowledgement import (
    ALL_IN_SYNC,
    LEADER_ONLY,
    NO_ANSWER,
    Pending,
    WaitingForReplicas,
    is_reached,
)
from kreplica.server.answers import LeaderHints
from kreplica.server.metadata import MetadataCache
from kreplica.server.produced import appended_row, error_row, find_partition
from kreplica.server.request import Request
from kreplica.server.transactional_produce import TransactionalProduces
from kreplica.transactions.admission import Admission

_ACKS = (ALL_IN_SYNC, NO_ANSWER, LEADER_ONLY)

Row = dict[str, Any]


class Produce:
    """One partition's failure is that partition's answer: the others are appended.

    :param metadata: where a producer is sent whose partition another broker leads (KIP-951).
    """

    def __init__(
        self,
        reactor: Reactor,
        partitions: Partitions,
        metadata: MetadataCache,
        wall_clock_ms: Callable[[], int],
        admission: Admission,
    ) -> None:
        self._reactor = reactor
        self._partitions = partitions
        self._metadata = metadata
        self._wall_clock_ms = wall_clock_ms
        self._transactional = TransactionalProduces(partitions, admission, wall_clock_ms)

    def __call__(self, request: Request) -> None:
        body = request.body
        acks = body["acks"]
        now_ms = self._wall_clock_ms()
        refusal = None if acks in _ACKS else _wrong_acks(acks)
        if refusal is None and body.get("transactional_id") is not None:
            timeout_s = body["timeout_ms"] / 1000
            self._transactional.begin(request, lambda produced: self._finish(request, acks, timeout_s, *produced))
            request.body = {}  # what has to wait was copied: the buffer that the request came in may go
            return
        version = request.version
        pending: list[Pending] = []
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
                    rows.append(self._append(key, data["records"], acks, now_ms, pending, version))
                except KafkaError as error:
                    failed = error
                    rows.append(error_row(index, error))
            responses.append({"name": name, "partition_responses": rows})
        self._finish(request, acks, body["timeout_ms"] / 1000, responses, pending, failed)

    def _finish(
        self,
        request: Request,
        acks: int,
        timeout_s: float,
        responses: list[Row],
        pending: list[Pending],
        failed: KafkaError | None,
    ) -> None:
        """Answer, as soon as what is in the log may be acknowledged."""
        if acks == NO_ANSWER:
            # Nobody would see an error: Kafka's clients notice one by the connection being closed.
            if failed is not None:
                request.abort(f"produce with acks=0 failed: {failed}")
            else:
                request.answer_nothing()
        elif pending:
            request.body = {}  # the records are in the log: the buffer that the request came in may go
            WaitingForReplicas(
                self._reactor, request, pending, timeout_s, lambda: self._answer(request, responses)
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
        pending: list[Pending],
        version: int,
    ) -> Row:
        partition = find_partition(self._partitions, key, records, version)
        assert records is not None
        result = partition.append(records, now_ms, all_in_sync=acks == ALL_IN_SYNC)
        row = appended_row(key.partition, partition, result)
        if not is_reached(partition, result.last_offset + 1, acks):
            pending.append(Pending(partition, result.last_offset + 1, acks, row))
        return row


def _wrong_acks(acks: int) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1, 0 or 1")


def _body(responses: list[Row], endpoints: Sequence[Row] = ()) -> Row:
    return {"responses": responses, "throttle_time_ms": 0, "node_endpoints": endpoints}
