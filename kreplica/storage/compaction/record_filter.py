"""Rules that decide which records of a batch compaction keeps: keys, tombstones, transactions, producer sequences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from kreplica.storage.producers.aborted_transactions import AbortedTransaction
from kreplica.wire.batch_building import filter_batch
from kreplica.wire.batches import BatchHeader, Bytes
from kreplica.wire.records import Record


class BatchFilter:
    """Filter for the batches of a log, in order.

    * Only the last record of each key is kept; records without a key are removed.
    * A tombstone or the marker of a transaction without batches is kept until its delete horizon, which is set when
      compaction first processes it (KIP-534).
    * Records of an aborted transaction are removed. Its marker is kept while a batch of it exists, even an empty one;
      otherwise recovery would treat the transaction as open, or merge it with the next one.
    * A producer's last batch is kept, empty if necessary, to preserve its sequence number and epoch.

    :param digest: returns a key's representation in ``offsets``.
    :param offsets: offset of the last record of each key below ``end_offset``.
    :param last_offsets: last offset of each producer's last batch.
    :param last_epochs: epochs of the producers that have no batch in their current epoch.
    """

    def __init__(
        self,
        aborted: Sequence[AbortedTransaction],
        digest: Callable[[bytes], bytes],
        offsets: Mapping[bytes, int],
        end_offset: int,
        *,
        last_offsets: Mapping[int, int],
        last_epochs: Mapping[int, int],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for transaction in aborted:
            self._aborted.setdefault(transaction.producer_id, []).append(transaction)
        self._digest = digest
        self._offsets = offsets
        self._end_offset = end_offset
        self._last_offsets = last_offsets
        self._last_epochs = last_epochs
        self._now_ms = now_ms
        self._new_horizon_ms = now_ms + delete_retention_ms
        self._producers_with_batches: set[int] = set()
        """Producers with batches of the transaction that is open at the current position."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """True if a data batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        aborted = self._next_aborted(header)
        return aborted is not None and aborted.first_offset <= header.base_offset

    def ended_by(self, header: BatchHeader) -> AbortedTransaction | None:
        """Return the transaction aborted by this marker, or None."""
        if not header.is_control:
            return None
        aborted = self._next_aborted(header)
        return aborted if aborted is not None and aborted.last_offset == header.base_offset else None

    def _next_aborted(self, header: BatchHeader) -> AbortedTransaction | None:
        """Return the producer's first aborted transaction whose marker is at or after this batch."""
        aborted = self._aborted.get(header.producer_id, [])
        index = bisect_left(aborted, header.base_offset, key=lambda transaction: transaction.last_offset)
        return aborted[index] if index < len(aborted) else None

    def keep(self, header: BatchHeader, data: Bytes) -> Bytes | None:
        """Return the remaining part of a batch, or None.

        :raise ProtocolError: the records are malformed.
        """
        if header.base_offset >= self._end_offset:
            return data
        if header.is_control:
            return self._keep_marker(header, data)
        if header.is_transactional:
            self._producers_with_batches.add(header.producer_id)
        return self._keep_data(header, data)

    def _keep_marker(self, header: BatchHeader, data: Bytes) -> Bytes | None:
        if header.producer_id in self._producers_with_batches:
            self._producers_with_batches.discard(header.producer_id)
            return data
        if self._last_epochs.get(header.producer_id) == header.producer_epoch:
            return data
        if self._is_past_horizon(header):
            return None
        return filter_batch(data, _keep_all, delete_horizon_ms=self._new_horizon_ms)

    def _keep_data(self, header: BatchHeader, data: Bytes) -> Bytes | None:
        keep_empty = self._last_offsets.get(header.producer_id) == header.last_offset
        if self.is_aborted(header):
            return filter_batch(data, _keep_none, keep_empty=keep_empty)
        is_past_horizon = self._is_past_horizon(header)
        tombstones = 0

        def keep(record: Record) -> bool:
            nonlocal tombstones
            if record.key is None:
                return False
            if self._offsets.get(self._digest(record.key), -1) > record.offset:
                return False
            if record.value is None:
                tombstones += 1
                return not is_past_horizon
            return True

        remaining = filter_batch(data, keep, keep_empty=keep_empty)
        if remaining is None or not tombstones or header.has_delete_horizon:
            return remaining
        return filter_batch(remaining, _keep_all, delete_horizon_ms=self._new_horizon_ms)

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        """True if the delete horizon of the batch is set and in the past."""
        return header.has_delete_horizon and header.base_timestamp <= self._now_ms


def _keep_all(record: Record) -> bool:
    return True


def _keep_none(record: Record) -> bool:
    return False
