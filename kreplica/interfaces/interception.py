"""Interception of produced batches by plugins, before they are appended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from zope.interface import Interface

from kreplica.interfaces.authorization import Principal
from kreplica.interfaces.records import LogRecord
from kreplica.model import TopicPartition


class ProducedBatch(Protocol):
    """Batch of one partition from a client, as changed by the previous interceptors.

    :ivar is_transactional: True if the batch belongs to a transaction, which may be aborted.
    :ivar is_compacted: True if the topic is compacted, which would remove notes.
    :ivar now_ms: append time by the wall clock, in milliseconds since 1970.
    """

    topic_partition: TopicPartition
    principal: Principal
    is_transactional: bool
    is_compacted: bool
    now_ms: int

    @property
    def records(self) -> Sequence[LogRecord]:
        """The records, decoded at the first access; ``offset`` is the index in the batch."""


@dataclass(frozen=True, slots=True)
class RejectBatch:
    """Reject the batch; its producer receives INVALID_RECORD.

    :param records: index in the batch -> why that record is invalid.
    """

    message: str
    records: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplaceRecords:
    """Append these records instead of those of the batch.

    :param records: a subset of the batch in its order, possibly changed; ``offset`` is the index in the batch. The
        offsets of dropped records stay unused, as after compaction.
    :param note: stored in the log directly before the records, atomically with them; replicated, and hidden from
        consumers. The interceptor reads it with ``LedPartitions.read`` on the current leader. In compacted topics and
        transactions, notes are not supported and the batch is rejected.
    """

    records: Sequence[LogRecord]
    note: bytes | None = None


class IProduceInterceptor(Interface):
    """Inspects batches before they are appended (``kreplica.produce.interceptors``, in the order of the setting)."""

    def intercept(batch: ProducedBatch) -> RejectBatch | ReplaceRecords | None:
        """Decide whether to reject or change one batch; None appends it unchanged.

        Called by the partition's leader for batches of clients, not for those of coordinators. A retry of a producer
        is intercepted again before the log recognizes it as a duplicate. If it raises, the batch is rejected with
        UNKNOWN_SERVER_ERROR.
        """

    def appended(batch: ProducedBatch, note_offset: int) -> None:
        """Report the offset of the note of a ``ReplaceRecords``; not called for a retry or without a note.

        If it raises, the batch stays appended.
        """
