"""Errors of batches that do not fit the state of their producer."""

from __future__ import annotations

from kreplica.errors import ErrorCode, KafkaError
from kreplica.storage.producers.producer_entry import ProducerEntry
from kreplica.wire.batches import BatchHeader


def old_epoch_error(header: BatchHeader, entry: ProducerEntry) -> KafkaError:
    """Return the error of a batch with an older epoch than that of its producer."""
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {header.producer_id} writes with epoch {header.producer_epoch}, which is older than {entry.epoch}",
    )


def old_marker_error(marker_epoch: int, entry: ProducerEntry) -> KafkaError:
    """Return the error of an end marker of an earlier transaction."""
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"the marker for producer {entry.producer_id} has epoch {marker_epoch}, which is older than {entry.epoch}",
    )


def not_included_error(producer_id: int) -> KafkaError:
    """Return the error of a batch whose transaction was not verified."""
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"the transaction of producer {producer_id} has ended, or does not include this partition",
    )


def incomplete_epoch_error(header: BatchHeader) -> KafkaError:
    """Return the error of a producer's first batch in a new epoch whose sequence is not 0."""
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} starts its epoch {header.producer_epoch} with sequence {header.base_sequence}",
    )


def out_of_order_error(header: BatchHeader, expected: int) -> KafkaError:
    """Return the error of a batch after a gap; ``expected`` is the next sequence number."""
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} of epoch {header.producer_epoch} sends sequence "
        f"{header.base_sequence}, expected {expected}",
    )


def forgotten_error(header: BatchHeader, *, is_committed: bool) -> KafkaError:
    """Return the error of a batch before its producer's last five; clients treat a duplicate as success."""
    if is_committed:
        code, state = ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "was appended"
    else:
        code, state = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "was appended, but is not committed yet"
    return KafkaError(code, f"producer {header.producer_id} resends sequence {header.base_sequence}, which {state}")


def deleted_error(header: BatchHeader) -> KafkaError:
    """Return the error of a batch that precedes the known batches of its producer; clients treat it as success."""
    return KafkaError(
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        f"producer {header.producer_id} resends sequence {header.base_sequence}, whose records are deleted",
    )


def must_wait_error(header: BatchHeader, code: ErrorCode) -> KafkaError:
    """Return the error of a batch that follows a rejected one; ``code`` is the error of the rejected batch."""
    return KafkaError(
        code, f"producer {header.producer_id} must resend the rejected batches before sequence {header.base_sequence}"
    )
