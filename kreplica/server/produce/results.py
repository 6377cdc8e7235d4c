"""Results and response rows of Produce, and the checks before a batch is appended to a partition's log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kreplica.cluster.topic_names import INTERNAL_TOPICS
from kreplica.errors import ErrorCode, KafkaError, RecordsRejected
from kreplica.model import TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.runtime.disk import Buffer
from kreplica.server.produce.delayed_produce import Pending, is_reached
from kreplica.server.protocol.responses import NO_LEADER_HINT
from kreplica.storage.log.results import AppendResult, Outcome
from kreplica.wire.batches import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_SIZE, MAGIC, MAGIC_POSITION, TRANSACTIONAL_BIT
from kreplica.wire.compression import Codec

ZSTD_FROM = 7
"""First version whose clients can read zstd (KIP-110)."""

Row = dict[str, Any]


class ProduceResults:
    """Results of the batches of one request.

    :ivar responses: response rows by topic.
    :ivar pending: appended batches that may not be acknowledged yet.
    :ivar failed: error of the last batch that was rejected, or None.
    """

    __slots__ = ("acks", "failed", "pending", "responses")

    def __init__(self, acks: int) -> None:
        self.acks = acks
        self.responses: list[Row] = []
        self.pending: list[Pending] = []
        self.failed: KafkaError | None = None

    def row(self, index: int, partition: Partition | None, outcome: Outcome) -> Row:
        """Record the outcome of one batch, and return its response row.

        :param partition: None only if the batch was rejected.
        """
        if type(outcome) is not AppendResult:
            self.failed = outcome
            return error_row(index, outcome)
        assert partition is not None
        row = appended_row(index, partition.log.log_start_offset, outcome)
        end_offset = outcome.last_offset + 1
        if not is_reached(partition, end_offset, self.acks):
            self.pending.append(Pending(partition, end_offset, self.acks, row))
        return row


def find_partition(
    partitions: Partitions,
    key: TopicPartition,
    records: Buffer | None,
    version: int,
    now_ms: int,
    transactional: int = 0,
) -> Partition:
    """Return the partition to which a batch is appended.

    :param version: version of Produce.
    :param now_ms: wall clock time.
    :param transactional: ``TRANSACTIONAL_BIT`` if the request belongs to a transaction, else 0.
    :raise KafkaError: the batch is rejected.
    """
    partition = partitions.get(key)
    if partition is None:
        raise partitions.reject(key, records, now_ms)
    if key.topic in INTERNAL_TOPICS:
        # A record that coordinators cannot parse would prevent the partition from being loaded.
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"only coordinators write to {key.topic}")
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
    if len(records) < HEADER_SIZE or records[MAGIC_POSITION] != MAGIC:
        return partition  # the log rejects it; older formats have other fields at these positions
    attributes = records[ATTRIBUTES_POSITION]
    if attributes & TRANSACTIONAL_BIT != transactional:
        raise KafkaError(ErrorCode.INVALID_RECORD, "the request or its batch is transactional, but not both")
    if version < ZSTD_FROM and attributes & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd requires Produce version {ZSTD_FROM} or later")
    return partition


def appended_row(index: int, log_start_offset: int, result: AppendResult) -> Row:
    """Return the row of an appended batch."""
    return {
        "index": index,
        "error_code": 0,
        "base_offset": result.base_offset,
        "log_append_time_ms": result.log_append_time_ms,
        "log_start_offset": log_start_offset,
        # Rows with all fields are built by the strict builder, which is twice as fast.
        "record_errors": (),
        "error_message": None,
        "current_leader": NO_LEADER_HINT,
    }


def error_row(index: int, error: KafkaError) -> Row:
    """Return the row of a batch that was rejected."""
    return {
        "index": index,
        "error_code": int(error.code),
        "base_offset": -1,
        "log_append_time_ms": -1,
        "log_start_offset": -1,
        "record_errors": _record_rows(error),
        "error_message": error.message or None,
        "current_leader": NO_LEADER_HINT,
    }


def response_body(responses: list[Row], endpoints: Sequence[Row] = ()) -> Row:
    """Return the response body from the rows of each topic."""
    return {"responses": responses, "throttle_time_ms": 0, "node_endpoints": endpoints}


def _record_rows(error: KafkaError) -> Sequence[Row]:
    if not isinstance(error, RecordsRejected):
        return ()
    return [{"batch_index": index, "batch_index_error_message": text} for index, text in error.records.items()]
