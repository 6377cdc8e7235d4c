"""What a log knows of the producers that wrote to it: sequences, epochs and open transactions.

An idempotent producer's retry is recognised by its last five batches (KIP-98); a gap, an old epoch, or a write outside
a transaction that is open is refused.  The same state says which offsets belong to transactions that are not decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import NamedTuple

from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime.disk import Buffer
from kreplica.storage.formats.batch_scanning import header_at
from kreplica.storage.producers import transaction_verification
from kreplica.storage.producers.aborted_transactions import AbortedTransaction
from kreplica.storage.producers.refused_batches import Refusals
from kreplica.storage.producers.transaction_verification import Verifications
from kreplica.wire.batches import BatchHeader
from kreplica.wire.control_records import EndMarker

RECENT_BATCHES_MAX = 5
NO_SEQUENCE = -1
NO_PRODUCER_EPOCH = -1
NO_OFFSET = -1
_SEQUENCE_MASK = 0x7FFFFFFF


class Origin(Enum):
    """Who asks for an append.  INTERCEPTED: a client, but a plugin has changed what it sent."""

    CLIENT = "client"
    INTERCEPTED = "intercepted"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


_IN_SEQUENCE = (Origin.CLIENT, Origin.INTERCEPTED)


class RecentBatch(NamedTuple):
    """One batch that a producer wrote; ``offset_delta`` is that of its last record."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequences wrap from 2**31 - 1 to 0."""
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    """One producer id on one log.

    :param transaction_first_offset: where its open transaction starts, or ``NO_OFFSET``.
    """

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    transaction_first_offset: int = NO_OFFSET
    timestamp_ms: int = -1
    batches: list[RecentBatch] = field(default_factory=list)

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record in this epoch, or ``NO_SEQUENCE``."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class CompletedTransaction(NamedTuple):
    """A transaction that a marker at ``last_offset`` has decided."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerStates:
    """The producers of one log.  ``check`` changes nothing; ``take_in`` follows once a batch is in the log.

    :ivar verifications: which transactions may begin; only a leader asks for that.
    :ivar refusals: batches that were refused for the moment.
    """

    def __init__(self, expiration_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self.verifications = Verifications()
        self._entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}
        """First offset of each open transaction -> producer id, growing (offsets are given in order)."""
        self._undecided: list[CompletedTransaction] = []
        """Decided, but the marker is not below the high watermark yet: still unstable."""
        self.refusals = Refusals()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        """What is known of that producer; not to be changed."""
        return self._entries.get(producer_id)

    @property
    def entries(self) -> Iterable[ProducerEntry]:
        """All producers, in no promised order."""
        return self._entries.values()

    def check(self, header: BatchHeader, marker: EndMarker | None, origin: Origin) -> RecentBatch | None:
        """May this batch follow what its producer wrote before?

        :param marker: what it says where it is a transaction marker.
        :return: where it is already, when it is a retry of one of the last five batches.
        :raise KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE,
            TRANSACTION_COORDINATOR_FENCED.
        """
        if not header.is_control:
            return self._check_data(header, origin)
        if marker is not None:
            self._check_marker(header, marker, origin)
        return None

    def _check_data(self, header: BatchHeader, origin: Origin) -> RecentBatch | None:
        entry = self._entries.get(header.producer_id)
        if entry is None:
            if origin in _IN_SEQUENCE and (code := self.refusals.code_for(header, None)) is not None:
                raise _behind(header, code)
            return None
        if origin is Origin.REPLICATION:
            return None
        if origin in _IN_SEQUENCE and (duplicate := _find_duplicate(entry, header)) is not None:
            return duplicate
        if is_old_epoch(header.producer_epoch, entry.epoch):
            raise _old_epoch(header, entry)
        if origin in _IN_SEQUENCE:
            self._check_sequence(entry, header)
        if entry.transaction_first_offset != NO_OFFSET and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"producer {header.producer_id} writes outside its open transaction"
            )
        return None

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer's transaction of that epoch is open here."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset != NO_OFFSET and entry.epoch == producer_epoch

    def check_transaction(self, header: BatchHeader) -> None:
        """May this batch be part of its producer's transaction: of the one that is open, or the first of another?

        :raise KafkaError: INVALID_PRODUCER_EPOCH; INVALID_TXN_STATE, its coordinator did not say that the partition is
            in it, or it has ended since; OUT_OF_ORDER_SEQUENCE_NUMBER, the batches before it are missing.
        """
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        if self.is_in_transaction(producer_id, producer_epoch):
            return
        entry = self._entries.get(producer_id)
        if entry is not None and is_old_epoch(producer_epoch, entry.epoch):
            raise _old_epoch(header, entry)
        verification = self.verifications.get(producer_id)
        if not transaction_verification.may_begin(verification, producer_epoch):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"the transaction of producer {producer_id} has ended, or never was here"
            )
        is_first = header.base_sequence in (0, NO_SEQUENCE)
        if entry is None and verification is not None and verification.starts_at_zero and not is_first:
            if (code := self.refusals.code_for(header, None)) is not None:
                raise _behind(header, code)
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} begins its epoch {producer_epoch} with sequence {header.base_sequence}",
            )

    def check_end(self, producer_id: int, producer_epoch: int, *, epoch_grows: bool) -> None:
        """May a transaction be ended by a marker of that epoch?

        :param epoch_grows: with each transaction of that producer (KIP-890).
        :raise KafkaError: INVALID_PRODUCER_EPOCH, the marker is that of an earlier transaction.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        is_open = entry.transaction_first_offset != NO_OFFSET
        if transaction_verification.is_late_marker(
            producer_epoch, entry.epoch, is_open=is_open, epoch_grows=epoch_grows
        ):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker for producer {producer_id} of epoch {producer_epoch}, {entry.epoch} is known",
            )

    def note_refusal(self, records: Buffer, error: KafkaError, now_ms: int) -> None:
        """A batch is answered with an error instead of being appended; its producer may send it again."""
        header = header_at(records, 0)
        if header is not None and header.producer_id >= 0:
            self.refusals.note(header, error.code, now_ms)

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader) -> None:
        """The next sequence of the epoch, or 0 for a new epoch; an entry without epoch says nothing (KIP-360)."""
        if entry.epoch == NO_PRODUCER_EPOCH:
            expected = None
        elif header.producer_epoch != entry.epoch or not entry.batches:
            expected = 0
        else:
            expected = (entry.last_sequence + 1) & _SEQUENCE_MASK
        if header.base_sequence == expected:
            return
        if (code := self.refusals.code_for(header, expected)) is not None:
            raise _behind(header, code)
        if expected is not None:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} of epoch {header.producer_epoch} sends sequence "
                f"{header.base_sequence} where {expected} follows",
            )

    def _check_marker(self, header: BatchHeader, marker: EndMarker, origin: Origin) -> None:
        entry = self._entries.get(header.producer_id)
        if entry is None or origin is Origin.REPLICATION:
            return
        self.check_end(header.producer_id, header.producer_epoch, epoch_grows=False)
        if is_replaced_coordinator(marker.coordinator_epoch, entry.coordinator_epoch):
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is older than {entry.coordinator_epoch}",
            )

    def take_in(self, header: BatchHeader, marker: EndMarker | None) -> AbortedTransaction | None:
        """Note a batch that is in the log now.

        :param marker: what it says where it is a transaction marker.
        :return: what the index of aborted transactions has to hold from now on.
        """
        if not header.is_control:
            self._take_in_data(header)
            return None
        completed = self._take_in_marker(header, marker) if marker is not None else None
        if completed is None or not completed.aborted:
            return None
        stable_offset = next(iter(self._ongoing), completed.last_offset + 1)
        return AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable_offset)

    def _take_in_data(self, header: BatchHeader) -> None:
        entry = self._entry_of(header)
        entry.timestamp_ms = header.max_timestamp
        if header.base_sequence != NO_SEQUENCE:
            if self.refusals.by_producer:
                self.refusals.appended(header)
            last_sequence = (header.base_sequence + header.last_offset_delta) & _SEQUENCE_MASK
            entry.batches.append(
                RecentBatch(last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
            )
            if len(entry.batches) > RECENT_BATCHES_MAX:
                del entry.batches[0]
        if header.is_transactional and entry.transaction_first_offset == NO_OFFSET:
            self.verifications.opened(header.producer_id)
            entry.transaction_first_offset = header.base_offset
            self._ongoing[header.base_offset] = header.producer_id

    def _take_in_marker(self, header: BatchHeader, marker: EndMarker) -> CompletedTransaction | None:
        """The transaction it ended; None for one without records here."""
        entry = self._entry_of(header)
        entry.timestamp_ms = header.max_timestamp
        entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
        first_offset, entry.transaction_first_offset = entry.transaction_first_offset, NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        self._ongoing.pop(first_offset, None)
        completed = CompletedTransaction(header.producer_id, first_offset, header.base_offset, not marker.committed)
        self._undecided.append(completed)
        return completed

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of a transaction that is open or whose marker is at or beyond the high watermark."""
        if not self._ongoing and not self._undecided:
            return None
        self._undecided = [completed for completed in self._undecided if completed.last_offset >= high_watermark]
        starts = [completed.first_offset for completed in self._undecided]
        starts.extend(islice(self._ongoing, 1))
        return min(starts, default=None)

    @property
    def ongoing_transactions(self) -> dict[int, int]:
        """First offset -> producer id of the transactions that are open, oldest first."""
        return dict(self._ongoing)

    def expire(self, now_ms: int) -> int:
        """Forget producers without an open transaction that wrote nothing for the expiration time; returns how many."""
        self.refusals.expire(now_ms)
        oldest_ms = now_ms - self.expiration_ms
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_first_offset == NO_OFFSET and entry.timestamp_ms <= oldest_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._ongoing.clear()
        self._undecided.clear()
        self.verifications.clear()

    def restore(self, entries: Iterable[ProducerEntry]) -> None:
        """Replace everything by what a snapshot holds."""
        self.clear()
        self._entries.update((entry.producer_id, entry) for entry in entries)
        started = (entry for entry in self._entries.values() if entry.transaction_first_offset != NO_OFFSET)
        for entry in sorted(started, key=lambda entry: entry.transaction_first_offset):
            self._ongoing[entry.transaction_first_offset] = entry.producer_id

    def _entry_of(self, header: BatchHeader) -> ProducerEntry:
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_id)
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        return entry


def is_replaced_coordinator(coordinator_epoch: int, known_epoch: int) -> bool:
    """Whether a newer coordinator has written a marker of the same producer already."""
    return coordinator_epoch < known_epoch


def is_old_epoch(producer_epoch: int, known_epoch: int) -> bool:
    """Whether a newer incarnation of a producer has written or ended something here, or its next transaction has."""
    return producer_epoch < known_epoch


def _old_epoch(header: BatchHeader, entry: ProducerEntry) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {header.producer_id} writes with epoch {header.producer_epoch}, {entry.epoch} is known",
    )


def _behind(header: BatchHeader, code: ErrorCode) -> KafkaError:
    return KafkaError(
        code, f"producer {header.producer_id} has to send again what was refused before sequence {header.base_sequence}"
    )


def _find_duplicate(entry: ProducerEntry, header: BatchHeader) -> RecentBatch | None:
    if header.producer_epoch != entry.epoch or header.base_sequence == NO_SEQUENCE:
        return None
    last_sequence = (header.base_sequence + header.last_offset_delta) & _SEQUENCE_MASK
    for batch in entry.batches:
        if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
            return batch
    return None
