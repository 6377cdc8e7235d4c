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


def forgotten_error(header: BatchHeader, *, is_committed: bool) -> KafkaError:
    """Return the error of a batch before its producer's last five; clients treat a duplicate as success."""
    if is_committed:
        code, state = ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "was appended"
    else:
        code, state = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "was appended, but is not committed yet"
    return KafkaError(code, f"producer {header.producer_id} resends sequence {header.base_sequence}, which {state}")


def must_wait_error(header: BatchHeader, code: ErrorCode) -> KafkaError:
    """Return the error of a batch that follows a rejected one; ``code`` is the error of the rejected batch."""
    return KafkaError(
        code, f"producer {header.producer_id} must resend the rejected batches before sequence {header.base_sequence}"
    )
