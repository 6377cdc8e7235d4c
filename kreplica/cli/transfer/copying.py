"""Records from one topic to another, and whether they arrived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import Struct

from kreplica.blocking import Cluster, Isolation, Producer, Reader, ReaderOptions, TopicPartition
from kreplica.cli.records.data_progress import CopyProgress, records_text
from kreplica.wire.records import Headers

TRANSACTION_RECORDS = 10_000
"""A transaction is committed when it has so many, or more where a batch of the source is larger."""

_LENGTHS = Struct(">qiii")
_DIGEST_SIZE = 16


def _new_digest() -> blake2b:
    return blake2b(digest_size=_DIGEST_SIZE)


@dataclass(slots=True)
class _Sum:
    count: int = 0
    digest: blake2b = field(default_factory=_new_digest)


class Checksums:
    """Of each partition: how many records, and a checksum of all of them in their order.

    :param with_times: times count; not where the topic stamps its records itself.
    """

    def __init__(self, *, with_times: bool) -> None:
        self._with_times = with_times
        self._sums: dict[int, _Sum] = {}

    def add(self, partition: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Take in the next record of a partition."""
        entry = self._sums.get(partition)
        if entry is None:
            entry = self._sums[partition] = _Sum()
        entry.count += 1
        digest = entry.digest
        lengths = (-1 if key is None else len(key), -1 if value is None else len(value), len(headers))
        digest.update(_LENGTHS.pack(timestamp_ms if self._with_times else 0, *lengths))
        digest.update(key or b"")
        digest.update(value or b"")
        for name, data in headers:
            content = name.encode(errors="surrogateescape")
            digest.update(_LENGTHS.pack(0, len(content), -1 if data is None else len(data), 0))
            digest.update(content + (data or b""))

    @property
    def count(self) -> int:
        """Records of all partitions."""
        return sum(entry.count for entry in self._sums.values())

    def differences(self, copied: Checksums) -> list[str]:
        """Where another one differs, for people; empty where it does not."""
        found = []
        for partition in sorted({*self._sums, *copied._sums}):
            mine, other = (each._sums.get(partition, _Sum()) for each in (self, copied))
            if mine.count != other.count:
                found.append(f"partition {partition}: {records_text(mine.count)} sent, {other.count:,} are there")
            elif mine.digest.digest() != other.digest.digest():
                found.append(
                    f"partition {partition}: {records_text(mine.count)}, but not the same, or in another order"
                )
        return found


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """What goes where.

    :param by_key: the target's partitions are chosen by keys, instead of kept.
    :param group: transactions of that id, with the source's offsets in them; None: no transactions.
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
        """Copy all that the reader gives, to its end.

        The transaction that is open when it is called is committed; another one begins after each, but the last.
        """
        began = sum(self._reader.positions.values())
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
            progress.add(len(records), size, sum(self._reader.positions.values()) - began)
        if self._plan.group is not None:
            self._commit()
        self._producer.flush()

    def _commit(self) -> None:
        assert self._plan.group is not None
        positions = self._reader.positions
        # Under the target's name: a cluster keeps offsets only of topics that it has.
        offsets = {TopicPartition(self._plan.target, each.partition): positions[each] for each in positions}
        self._producer.commit(offsets, self._plan.group)
        self._in_transaction = 0


def read_back(
    cluster: Cluster, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, with_times: bool
) -> Checksums:
    """The checksums of what is there between offsets, transactions that were aborted left out."""
    sums = Checksums(with_times=with_times)
    options = ReaderOptions(isolation=Isolation.READ_COMMITTED)
    with Reader(cluster, starts, ends=ends, options=options) as reader:
        for (_, partition), _, records, _ in reader.batches():
            for _, timestamp_ms, key, value, headers in records:
                sums.add(partition, timestamp_ms, key, value, headers)
    return sums
