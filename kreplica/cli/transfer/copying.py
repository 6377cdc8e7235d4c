"""Copies records from one topic to another, with checksums for verification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct

from kreplica.blocking import Cluster, Isolation, Producer, Reader, ReaderOptions, TopicPartition
from kreplica.cli.records.data_progress import CopyProgress, records_text
from kreplica.wire.records import Headers

TRANSACTION_RECORDS = 10_000
"""Minimum number of records per transaction; the transaction is committed at the end of the current source batch."""

_LENGTHS = Struct(">qiii")
_DIGEST_SIZE = 16


def _new_digest() -> blake2b:
    return blake2b(digest_size=_DIGEST_SIZE)


@dataclass(slots=True)
class _Sum:
    count: int = 0
    digest: blake2b = field(default_factory=_new_digest)


class Checksums:
    """Number and checksum of the records of each partition; a checksum depends on their order.

    :param with_timestamps: include timestamps; False if the topic's brokers replace them.
    """

    def __init__(self, *, with_timestamps: bool) -> None:
        self._with_timestamps = with_timestamps
        self._sums: dict[int, _Sum] = {}

    def add(self, partition: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Add the next record of a partition."""
        entry = self._sums.get(partition)
        if entry is None:
            entry = self._sums[partition] = _Sum()
        entry.count += 1
        digest = entry.digest
        lengths = (-1 if key is None else len(key), -1 if value is None else len(value), len(headers))
        digest.update(_LENGTHS.pack(timestamp_ms if self._with_timestamps else 0, *lengths))
        digest.update(key or b"")
        digest.update(value or b"")
        for name, data in headers:
            content = name.encode(errors="surrogateescape")
            digest.update(_LENGTHS.pack(0, len(content), -1 if data is None else len(data), 0))
            digest.update(content + (data or b""))

    @property
    def count(self) -> int:
        """Number of records of all partitions."""
        return sum(entry.count for entry in self._sums.values())

    def differences(self, copied: Checksums) -> list[str]:
        """Describe the partitions whose copy differs; empty if all are equal."""
        found = []
        for partition in sorted({*self._sums, *copied._sums}):
            original, copy = (each._sums.get(partition, _Sum()) for each in (self, copied))
            if original.count != copy.count:
                found.append(f"partition {partition}: {records_text(original.count)} sent, {copy.count:,} found")
            elif original.digest.digest() != copy.digest.digest():
                found.append(f"partition {partition}: {records_text(original.count)} with different content or order")
        return found


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Source and target of a copy.

    :param by_key: choose partitions by key instead of keeping them.
    :param group: transactional ID, and consumer group that commits the source's offsets; None for no transactions.
    """

    source: str
    target: str
    by_key: bool
    group: str | None


class Copy:
    """One run of a copy."""

    def __init__(self, plan: CopyPlan, reader: Reader, producer: Producer, sums: Checksums | None) -> None:
        self._plan = plan
        self._reader = reader
        self._producer = producer
        self._sums = sums
        self._in_transaction = 0

    def run(self, progress: CopyProgress) -> None:
        """Copy all records up to the end offsets of the reader.

        If the copy is transactional, the caller has begun the first transaction, and this method commits the last one.
        """
        start = sum(self._reader.positions.values())
        for (_, partition), _, records, _ in self._reader.batches():
            size = 0
            for _, timestamp_ms, key, value, headers in records:
                delivery = self._producer.send(
                    self._plan.target,
                    value,
                    key=key,
                    headers=headers,
                    partition=None if self._plan.by_key else partition,
                    timestamp_ms=timestamp_ms,
                )
                if self._sums is not None:
                    self._sums.add(delivery.partition.partition, timestamp_ms, key, value, headers)
                size += len(key or b"") + len(value or b"")
            self._in_transaction += len(records)
            if self._plan.group is not None and self._in_transaction >= TRANSACTION_RECORDS:
                self._commit()
                self._producer.begin()
            progress.add(len(records), size, sum(self._reader.positions.values()) - start)
        if self._plan.group is not None:
            self._commit()
        self._producer.flush()

    def _commit(self) -> None:
        assert self._plan.group is not None
        positions = self._reader.positions
        # Stored under the target's name: a cluster stores offsets only for its own topics.
        offsets = {TopicPartition(self._plan.target, each.partition): positions[each] for each in positions}
        self._producer.commit(offsets, self._plan.group)
        self._in_transaction = 0


def read_checksums(
    cluster: Cluster, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, with_timestamps: bool
) -> Checksums:
    """Read the records between offsets, without those of aborted transactions, and return their checksums."""
    sums = Checksums(with_timestamps=with_timestamps)
    options = ReaderOptions(isolation=Isolation.READ_COMMITTED)
    with Reader(cluster, starts, ends=ends, options=options) as reader:
        for (_, partition), _, records, _ in reader.batches():
            for _, timestamp_ms, key, value, headers in records:
                sums.add(partition, timestamp_ms, key, value, headers)
    return sums
