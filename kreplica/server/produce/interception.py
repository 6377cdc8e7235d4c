"""Produce interceptors, which may change or reject each batch of a client before it is appended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kreplica.errors import ErrorCode, KafkaError, ProtocolError, RecordsRejected
from kreplica.interfaces import IProduceInterceptor, LogRecord, Principal, RejectBatch, ReplaceRecords
from kreplica.replication import Partition
from kreplica.replication.intercepted_append import append_intercepted
from kreplica.runtime.disk import Buffer
from kreplica.storage.log.results import AppendResult, Outcome, only_result
from kreplica.storage.producers.producer_state import Origin
from kreplica.storage.segments.batch_validation import ValidatedBatch
from kreplica.wire.batch_building import with_records
from kreplica.wire.batches import Bytes, check_batch
from kreplica.wire.interceptor_notes import Note
from kreplica.wire.records import Record, iter_records


class Interceptor(NamedTuple):
    """Configured interceptor.

    :param failed: called in the ``except`` block with a description of the failed operation.
    """

    name: str
    plugin: IProduceInterceptor
    failed: Callable[[str], object]


class Batch:
    """Batch as interceptors see it (``interfaces.ProducedBatch``).

    :ivar data: the batch, with the changes made so far.
    """

    __slots__ = (
        "_header",
        "_records",
        "data",
        "is_compacted",
        "is_transactional",
        "now_ms",
        "principal",
        "topic_partition",
    )

    def __init__(self, partition: Partition, data: Bytes, principal: Principal, now_ms: int) -> None:
        self._header = check_batch(data)
        self._records: Sequence[LogRecord] | None = None
        self.data = data
        self.topic_partition = partition.topic_partition
        self.principal = principal
        self.is_transactional = self._header.is_transactional
        self.is_compacted = partition.log.config.compacted
        self.now_ms = now_ms

    @property
    def records(self) -> Sequence[LogRecord]:
        """Records of the batch.

        :raise KafkaError: INVALID_RECORD, the records are malformed.
        """
        if self._records is None:
            try:
                self._records = [
                    LogRecord(record.timestamp_ms, record.key, record.value, record.headers, index)
                    for index, record in enumerate(iter_records(self.data))
                ]
            except ProtocolError as error:
                raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        return self._records

    def change(self, records: Sequence[LogRecord]) -> None:
        """Replace the records.

        :raise ValueError: an offset is outside the batch, or the offsets do not increase.
        """
        base = self._header.base_offset
        self.data = with_records(
            self._header, [Record(base + r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records]
        )
        self._records = records


class InterceptedBatch(NamedTuple):
    """Result of the interceptors for one batch.

    :param records: the batch to append; the original object if ``origin`` is CLIENT.
    """

    records: Bytes
    origin: Origin
    notes: Sequence[tuple[Interceptor, Note]]
    batch: Batch


class Interception:
    """All interceptors of a broker, in configured order."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self._interceptors = interceptors

    def intercept(self, partition: Partition, data: Buffer, principal: Principal, now_ms: int) -> InterceptedBatch:
        """Call the interceptors in order.

        :raise KafkaError: INVALID_RECORD if an interceptor rejects the batch, UNKNOWN_SERVER_ERROR if one raises, or
            the error of a malformed batch.
        """
        if isinstance(data, ValidatedBatch):
            data.accepted()
        batch = Batch(partition, data, principal, now_ms)
        notes: list[tuple[Interceptor, Note]] = []
        is_changed = False
        for interceptor in self._interceptors:
            verdict = self._verdict(interceptor, batch)
            if isinstance(verdict, RejectBatch):
                raise RecordsRejected(f"{interceptor.name}: {verdict.message}", verdict.records)
            if verdict is not None:
                is_changed = True
                if verdict.note is not None:
                    notes.append((interceptor, Note(interceptor.name, verdict.note)))
        if not is_changed:
            return InterceptedBatch(data, Origin.CLIENT, (), batch)
        return InterceptedBatch(batch.data, Origin.INTERCEPTED, notes, batch)

    def _verdict(self, interceptor: Interceptor, batch: Batch) -> RejectBatch | ReplaceRecords | None:
        try:
            verdict = interceptor.plugin.intercept(batch)
            if isinstance(verdict, ReplaceRecords):
                batch.change(verdict.records)
            return verdict
        except KafkaError:
            raise
        except Exception:
            interceptor.failed(f"intercepting a batch for {batch.topic_partition}")
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the interceptor {interceptor.name} failed") from None

    def append(
        self, partition: Partition, batches: Sequence[Buffer], principal: Principal, now_ms: int, *, all_in_sync: bool
    ) -> list[Outcome]:
        """Append batches one by one like ``Partition.append``, with the interceptors' changes."""
        outcomes: list[Outcome] = []
        for records in batches:
            try:
                intercepted = self._intercept(partition, records, principal, now_ms)
                outcomes.append(self._append(partition, intercepted, now_ms, all_in_sync=all_in_sync))
            except KafkaError as error:
                outcomes.append(error)
        return outcomes

    def in_transaction(
        self, partition: Partition, records: Buffer, principal: Principal, now_ms: int
    ) -> tuple[Bytes, Origin]:
        """Return the batch of a transaction with the interceptors' changes, and its origin.

        :raise KafkaError: the errors of ``intercept``; INVALID_RECORD if an interceptor returns notes.
        """
        intercepted = self._intercept(partition, records, principal, now_ms)
        if intercepted.notes:
            raise KafkaError(ErrorCode.INVALID_RECORD, "records of a transaction cannot be held back")
        return intercepted.records, intercepted.origin

    def _intercept(self, partition: Partition, records: Buffer, principal: Principal, now_ms: int) -> InterceptedBatch:
        try:
            return self.intercept(partition, records, principal, now_ms)
        except KafkaError as error:
            partition.log.producers.note_rejection(records, error, now_ms)
            raise

    def _append(
        self, partition: Partition, intercepted: InterceptedBatch, now_ms: int, *, all_in_sync: bool
    ) -> AppendResult:
        """Append a batch, and notify the interceptors whose notes were appended."""
        if intercepted.origin is Origin.CLIENT:
            return only_result(partition.append((intercepted.records,), now_ms, all_in_sync=all_in_sync))
        notes = [note for _, note in intercepted.notes]
        result, note_offset = append_intercepted(partition, intercepted.records, notes, now_ms, all_in_sync=all_in_sync)
        if note_offset >= 0:
            for index, (interceptor, _) in enumerate(intercepted.notes):
                try:
                    interceptor.plugin.appended(intercepted.batch, note_offset + index)
                except Exception:
                    interceptor.failed(f"handling the offset of its note in {partition.topic_partition}")
        return result
