"""What Produce says of one partition, and what it looks at before a batch goes to the partition's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kreplica.cluster.topic_names import INTERNAL_TOPICS
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.server.answers import NO_LEADER_HINT
from kreplica.storage.results import AppendResult
from kreplica.wire.batches import CODEC_MASK, HEADER_SIZE, TRANSACTIONAL_BIT, attributes_of
from kreplica.wire.compression import Codec
from kreplica.wire.repeated import ZSTD_FROM

Row = dict[str, Any]


class RecordsRefused(KafkaError):
    """A batch some records of which are not wanted (KIP-467).

    :param records: by index in the batch: what is wrong with that record.
    """

    def __init__(self, message: str, records: Mapping[int, str]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)
        self.records = dict(sorted(records.items()))


def find_partition(
    partitions: Partitions, key: TopicPartition, records: memoryview | None, version: int, transactional: int = 0
) -> Partition:
    """Where a batch is to go.

    :param version: of Produce.
    :param transactional: ``TRANSACTIONAL_BIT`` where the request is of a transaction.
    :raise KafkaError: it may not go anywhere.
    """
    partition = partitions.get(key)
    if partition is None:
        raise partitions.unknown(key)
    if key.topic in INTERNAL_TOPICS:
        # A record that no coordinator can read keeps its partition from being loaded.
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"only coordinators write to {key.topic}")
    if records is None or len(records) == 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no records")
    attributes = attributes_of(records)
    if attributes & TRANSACTIONAL_BIT != transactional and len(records) >= HEADER_SIZE:
        raise KafkaError(ErrorCode.INVALID_RECORD, "of the request and its batch only one is of a transaction")
    if version < ZSTD_FROM and attributes & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {ZSTD_FROM} or later")
    return partition


def appended_row(index: int, log_start_offset: int, result: AppendResult) -> Row:
    """A batch is in the log."""
    return {
        "index": index,
        "error_code": 0,
        "base_offset": result.base_offset,
        "log_append_time_ms": result.log_append_time_ms,
        "log_start_offset": log_start_offset,
        # All fields, also those that stay as they are: an answer that is complete is built twice as fast.
        "record_errors": (),
        "error_message": None,
        "current_leader": NO_LEADER_HINT,
    }


def error_row(index: int, error: KafkaError) -> Row:
    """Nothing of it is in the log."""
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


def answer_body(responses: list[Row], endpoints: Sequence[Row] = ()) -> Row:
    """The whole answer, of rows by topic."""
    return {"responses": responses, "throttle_time_ms": 0, "node_endpoints": endpoints}


def _record_rows(error: KafkaError) -> Sequence[Row]:
    if not isinstance(error, RecordsRefused):
        return ()
    return [{"batch_index": index, "batch_index_error_message": text} for index, text in error.records.items()]
