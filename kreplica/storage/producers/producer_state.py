"""State of the producers of a log: sequence numbers, epochs and open transactions.

A retry by an idempotent producer is recognized by its last five batches (KIP-98). A gap, an old epoch, or a write
outside an open transaction is rejected. The start of the first open transaction is the input of
``last_stable_offset``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from itertools import islice
from typing import NamedTuple, Protocol

from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime.disk import Buffer
from kreplica.runtime.empty_dict import EMPTY_DICT
from kreplica.storage.formats.batch_scanning import header_at
from kreplica.storage.producers import producer_errors, transaction_verification
from kreplica.storage.producers.aborted_transactions import AbortedTransaction
from kreplica.storage.producers.duplicates import find_duplicate, is_forgotten_duplicate, precedes_known_batches
from kreplica.storage.producers.producer_entry import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    RECENT_BATCHES_MAX,
    SEQUENCE_MASK,
    ProducerEntry,
    RecentBatch,
)
from kreplica.storage.producers.producer_limits import UNLIMITED, ProducerLimits
from kreplica.storage.producers.rejected_batches import Rejections
from kreplica.storage.producers.transaction_verification import Verifications
from kreplica.wire.batches import BatchHeader
from kreplica.wire.control_records import EndMarker


class Origin(Enum):
    """Source of an appended batch. INTERCEPTED: a client's batch that a plugin has changed."""

    CLIENT = "client"
    INTERCEPTED = "intercepted"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


_SEQUENCE_CHECKED = (Origin.CLIENT, Origin.INTERCEPTED)


class CompletedTransaction(NamedTuple):
    """A transaction ended by the marker at ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class HasHighWatermark(Protocol):
    """A partition with its high watermark."""

    @property
    def high_watermark(self) -> int: ...


class _NoPartition:
    """Null object for the partition of a log that has none."""

    high_watermark = 0


_NO_PARTITION = _NoPartition()


class ProducerStates:
    """Producers of one log. ``check`` validates a batch; ``apply`` applies it after the append.

    :ivar replicated_after_gap: producers whose first known batch came from the leader after this log skipped deleted
        records, so their earlier batches may be unknown; None if the log has not skipped any.
    :ivar partition: the log's partition, which sets it.
    """

    __slots__ = (
        "_entries",
        "_limits",
        "_ongoing",
        "_rejections",
        "_unstable",
        "_verifications",
        "expiration_ms",
        "partition",
        "replicated_after_gap",
    )

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self._verifications: Verifications | None = None
        self._entries: dict[int, ProducerEntry] = EMPTY_DICT
        self._ongoing: dict[int, int] = EMPTY_DICT
        """Producer ID by first offset of its open transaction, in increasing order of offsets."""
        self._unstable: list[CompletedTransaction] | None = None
        """Ended transactions whose marker is not below the high watermark and which are therefore still unstable."""
        self._rejections: Rejections | None = None
        self.replicated_after_gap: set[int] | None = None
        self.partition: HasHighWatermark = _NO_PARTITION
        self._limits = UNLIMITED

    @property
    def verifications(self) -> Verifications:
        """Transactions that the coordinator confirmed and that may therefore start here; used only by a leader."""
        verifications = self._verifications
        if verifications is None:
            verifications = self._verifications = Verifications()
        return verifications

    @property
    def rejections(self) -> Rejections:
        """Batches rejected with a retriable error."""
        rejections = self._rejections
        if rejections is None:
            rejections = self._rejections = Rejections()
        return rejections

    def set_limits(self, limits: ProducerLimits) -> None:
        """Apply the limits of a broker from now on."""
        if limits is not self._limits:
            self._limits = limits
            limits.note_added(len(self))

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Return the state of a producer; the caller must not change it."""
        return self._entries.get(producer_id)

    @property
    def entries(self) -> Iterable[ProducerEntry]:
        """All producers, in no particular order."""
        return self._entries.values()

    def note_replicated(self, headers: Iterable[BatchHeader]) -> None:
        """Record the producers that these replicated batches introduce; called before the batches are applied."""
        if self.replicated_after_gap is not None:
            ids = (header.producer_id for header in headers if header.producer_id >= 0 and not header.is_control)
            self.replicated_after_gap.update(each for each in ids if each not in self._entries)

    def check(self, header: BatchHeader, marker: EndMarker | None, origin: Origin) -> RecentBatch | None:
        """Check that a batch may follow its producer's earlier batches.

        :param marker: the end marker, if the batch is one.
        :return: the earlier batch, if this one repeats one of the last five.
        :raise KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER,
            NOT_ENOUGH_REPLICAS_AFTER_APPEND, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED, NOT_ENOUGH_REPLICAS for
            a new producer beyond the limits, or the error of an earlier rejected batch (``rejected_batches``).
        """
        if not header.is_control:
            return self._check_data(header, origin)
        if marker is not None:
            self._check_marker(header, marker, origin)
        return None

    def _check_data(self, header: BatchHeader, origin: Origin) -> RecentBatch | None:
        entry = self._entries.get(header.producer_id)
        if entry is None:
            if origin in _SEQUENCE_CHECKED:
                if (code := self._rejection_for(header, None)) is not None:
                    raise producer_errors.must_wait_error(header, code)
                self._limits.check(len(self._entries))
            return None
        if origin is Origin.REPLICATION:
            return None
        if origin in _SEQUENCE_CHECKED and (duplicate := find_duplicate(entry, header)) is not None:
            return duplicate
        if is_old_epoch(header.producer_epoch, entry.epoch):
            raise producer_errors.old_epoch_error(header, entry)
        if origin in _SEQUENCE_CHECKED:
            self._check_sequence(entry, header)
        if entry.transaction_first_offset != NO_OFFSET and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"producer {header.producer_id} writes outside its open transaction"
            )
        return None

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """True if a transaction of this producer and epoch is open here."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset != NO_OFFSET and entry.epoch == producer_epoch

    def check_transaction(self, header: BatchHeader) -> None:
        """Check that a batch may continue its producer's open transaction or start another one.

        :raise KafkaError: INVALID_PRODUCER_EPOCH; INVALID_TXN_STATE if the coordinator did not confirm that the
            partition belongs to the transaction, or if the transaction has ended;
            OUT_OF_ORDER_SEQUENCE_NUMBER if earlier batches are missing.
        """
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        if self.is_in_transaction(producer_id, producer_epoch):
            return
        entry = self._entries.get(producer_id)
        if entry is not None and is_old_epoch(producer_epoch, entry.epoch):
            raise producer_errors.old_epoch_error(header, entry)
        verification = self.verifications.get(producer_id)
        if not transaction_verification.may_begin(verification, producer_epoch):
            raise producer_errors.not_included_error(producer_id)
        is_first = header.base_sequence in (0, NO_SEQUENCE)
        if entry is None and verification is not None and verification.starts_at_zero and not is_first:
            if (code := self._rejection_for(header, None)) is not None:
                raise producer_errors.must_wait_error(header, code)
            raise producer_errors.incomplete_epoch_error(header)

    def check_end(self, producer_id: int, producer_epoch: int, *, bumps_epoch: bool) -> None:
        """Check that an end marker may end a transaction.

        :param bumps_epoch: the producer epoch increases with each transaction (KIP-890).
        :raise KafkaError: INVALID_PRODUCER_EPOCH if the marker belongs to an earlier transaction.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        is_open = entry.transaction_first_offset != NO_OFFSET
        if transaction_verification.is_late_marker(
            producer_epoch, entry.epoch, is_open=is_open, bumps_epoch=bumps_epoch
        ):
            raise producer_errors.old_marker_error(producer_epoch, entry)

    def note_rejection(self, records: Buffer, error: KafkaError, now_ms: int) -> None:
        """Record that a batch was rejected; its producer may send it again."""
        header = header_at(records, 0)
        if header is None or header.producer_id < 0:
            return
        entry = self._entries.get(header.producer_id)
        if entry is None or not is_forgotten_duplicate(entry, header):
            self.rejections.note(header, error.code, now_ms)

    def _rejection_for(self, header: BatchHeader, expected: int | None) -> ErrorCode | None:
        return self._rejections.code_for(header, expected) if self._rejections is not None else None

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader) -> None:
        """Check that the sequence number is the next one, or 0 in a new epoch; not checked if the epoch is unknown."""
        if entry.epoch == NO_PRODUCER_EPOCH:
            expected = None
        elif header.producer_epoch != entry.epoch or not entry.batches:
            expected = 0
        else:
            expected = (entry.last_sequence + 1) & SEQUENCE_MASK
        if header.base_sequence == expected:
            return
        if is_forgotten_duplicate(entry, header):
            is_committed = entry.batches[0].first_offset <= self.partition.high_watermark
            raise producer_errors.forgotten_error(header, is_committed=is_committed)
        if header.producer_id in (self.replicated_after_gap or ()) and precedes_known_batches(entry, header):
            raise producer_errors.deleted_error(header)
        if (code := self._rejection_for(header, expected)) is not None:
            raise producer_errors.must_wait_error(header, code)
        if expected is not None:
            raise producer_errors.out_of_order_error(header, expected)

    def _check_marker(self, header: BatchHeader, marker: EndMarker, origin: Origin) -> None:
        entry = self._entries.get(header.producer_id)
        if entry is None or origin is Origin.REPLICATION:
            return
        self.check_end(header.producer_id, header.producer_epoch, bumps_epoch=False)
        if is_replaced_coordinator(marker.coordinator_epoch, entry.coordinator_epoch):
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is older than {entry.coordinator_epoch}",
            )

    def apply(self, header: BatchHeader, marker: EndMarker | None) -> AbortedTransaction | None:
        """Apply a batch that was appended.

        :param marker: the end marker, if the batch is one.
        :return: the aborted transaction to add to the index, if any.
        """
        if not header.is_control:
            self._apply_data(header)
            return None
        completed = self._apply_marker(header, marker) if marker is not None else None
        if completed is None or not completed.aborted:
            return None
        stable_offset = next(iter(self._ongoing), completed.last_offset + 1)
        return AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable_offset)

    def _apply_data(self, header: BatchHeader) -> None:
        entry = self._entry_of(header)
        entry.timestamp_ms = header.max_timestamp
        if header.base_sequence != NO_SEQUENCE:
            rejections = self._rejections
            if rejections is not None and rejections.by_producer:
                rejections.note_appended(header)
            last_sequence = (header.base_sequence + header.last_offset_delta) & SEQUENCE_MASK
            entry.batches.append(
                RecentBatch(last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
            )
            if len(entry.batches) > RECENT_BATCHES_MAX:
                del entry.batches[0]
        if header.is_transactional and entry.transaction_first_offset == NO_OFFSET:
            self.verifications.note_opened(header.producer_id)
            entry.transaction_first_offset = header.base_offset
            if not self._ongoing:
                self._ongoing = {}
            self._ongoing[header.base_offset] = header.producer_id

    def _apply_marker(self, header: BatchHeader, marker: EndMarker) -> CompletedTransaction | None:
        """Return the transaction ended by a marker, or None if it has no records here."""
        entry = self._entry_of(header)
        entry.timestamp_ms = header.max_timestamp
        entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
        first_offset, entry.transaction_first_offset = entry.transaction_first_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        self._ongoing.pop(first_offset, None)
        completed = CompletedTransaction(header.producer_id, first_offset, header.base_offset, not marker.committed)
        if self._unstable is None:
            self._unstable = []
        self._unstable.append(completed)
        return completed

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of a transaction that is open or whose marker is not below the high watermark."""
        unstable = self._unstable
        if not self._ongoing and not unstable:
            return None
        unstable = [completed for completed in unstable or () if completed.last_offset >= high_watermark]
        self._unstable = unstable or None
        starts = [completed.first_offset for completed in unstable]
        starts.extend(islice(self._ongoing, 1))
        return min(starts, default=None)

    @property
    def ongoing_transactions(self) -> dict[int, int]:
        """Producer IDs of open transactions by first offset, oldest first."""
        return dict(self._ongoing)

    def expire(self, now_ms: int) -> int:
        """Remove idle producers without an open transaction after the expiration time, and return their number."""
        if self._rejections is not None:
            self._rejections.expire(now_ms)
        oldest_ms = now_ms - self.expiration_ms
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_first_offset == NO_OFFSET and entry.timestamp_ms <= oldest_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        if expired:
            self._limits.note_removed()
        return len(expired)

    def clear(self) -> None:
        """Remove all producers."""
        self._entries, self._ongoing, self._unstable = EMPTY_DICT, EMPTY_DICT, None
        self._limits.note_removed()
        self.clear_verifications()

    def clear_verifications(self) -> None:
        """Remove all verifications, because the log is empty or this broker stops leading."""
        self._verifications = None

    def restore(self, entries: Iterable[ProducerEntry], *, has_gap: bool = False) -> None:
        """Replace all producers with those of a snapshot.

        :param has_gap: the log starts above offset 0, and there is no snapshot of the producers before its start.
        """
        self.clear()
        self.replicated_after_gap = set() if has_gap else None
        self._entries = {entry.producer_id: entry for entry in entries} or EMPTY_DICT
        in_transaction = [entry for entry in self._entries.values() if entry.transaction_first_offset != NO_OFFSET]
        in_transaction.sort(key=lambda entry: entry.transaction_first_offset)
        starts = {entry.transaction_first_offset: entry.producer_id for entry in in_transaction}
        self._ongoing = starts or EMPTY_DICT

    def _entry_of(self, header: BatchHeader) -> ProducerEntry:
        entry = self._entries.get(header.producer_id)
        if entry is None:
            if not self._entries:
                self._entries = {}
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_id)
            self._limits.note_added()
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
            entry.is_whole = header.base_sequence == 0
        return entry


def is_replaced_coordinator(coordinator_epoch: int, known_epoch: int) -> bool:
    """True if a newer coordinator has already written a marker of this producer."""
    return coordinator_epoch < known_epoch


def is_old_epoch(producer_epoch: int, known_epoch: int) -> bool:
    """True if a newer producer epoch has written or ended a transaction here."""
    return producer_epoch < known_epoch
