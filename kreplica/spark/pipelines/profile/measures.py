"""Measures of a slice of a partition, collected batch by batch; slices are merged in offset order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kreplica.spark.pipelines.profile.sketches import Keys, Rates, Sizes
from kreplica.spark.pipelines.profile.transactions import Transactions
from kreplica.spark.source.decoding import Section, decode
from kreplica.wire.batches import HEADER_SIZE, BatchHeader

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

PRODUCERS_KEPT = 10_000
"""Number of producers that keep separate totals, if there are more than twice as many: those with the most bytes. The
others are combined as ``SMALL_PRODUCERS``.
"""

SMALL_PRODUCERS = -2
"""Producer ID of the combined totals of small producers."""


@dataclass(slots=True)
class Tally:
    """Totals of the batches of one codec or one producer.

    :ivar size_bytes: size in the log.
    :ivar sampled_size: size in the log of the batches that were decompressed.
    :ivar decompressed_size: decompressed size of these batches.
    """

    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    sampled_size: int = 0
    decompressed_size: int = 0
    is_transactional: bool = False

    def merge(self, other: Tally) -> None:
        """Add the totals of another tally."""
        self.batches += other.batches
        self.records += other.records
        self.size_bytes += other.size_bytes
        self.sampled_size += other.sampled_size
        self.decompressed_size += other.decompressed_size
        self.is_transactional |= other.is_transactional

    @property
    def size_in_memory(self) -> int:
        """Estimate the decompressed size of all batches from those that were decompressed."""
        if not self.sampled_size:
            return self.size_bytes
        return round(self.size_bytes * self.decompressed_size / self.sampled_size)


@dataclass(slots=True)
class Measures:
    """Measures of a slice, a partition or a topic.

    :ivar opened: number of decoded records: all of them, or a sample.
    :ivar keyed: number of decoded records with a key.
    :ivar without_value: number of decoded records without a value, which are tombstones in a compacted topic.
    :ivar batch_sizes: sizes of batches in the log.
    :ivar timestamp_types: number of records by ``TimestampType``.
    :ivar without_time: number of records without a timestamp.
    """

    by_codec: dict[int, Tally] = field(default_factory=dict)
    by_producer: dict[int, Tally] = field(default_factory=dict)
    timestamp_types: dict[int, int] = field(default_factory=dict)
    transactions: Transactions = field(default_factory=Transactions)
    batch_sizes: Sizes = field(default_factory=Sizes)
    key_sizes: Sizes = field(default_factory=Sizes)
    value_sizes: Sizes = field(default_factory=Sizes)
    rates: Rates = field(default_factory=Rates)
    keys: Keys = field(default_factory=Keys)
    opened: int = 0
    keyed: int = 0
    without_value: int = 0
    without_time: int = 0
    control_bytes: int = 0

    def add_headers(self, headers: Sequence[BatchHeader], decompressed_sizes: Sequence[int | None]) -> None:
        """Add batches of records, in order.

        :param decompressed_sizes: None for a batch that was not decompressed.
        """
        self.batch_sizes.add(np.array([header.size for header in headers], dtype=np.int64))
        for header, size in zip(headers, decompressed_sizes, strict=True):
            tally = Tally(1, header.record_count, header.size, is_transactional=header.is_transactional)
            if size is not None:
                tally.sampled_size, tally.decompressed_size = header.size, size + HEADER_SIZE
            _add_tally(self.by_codec, header.codec, tally)
            _add_tally(self.by_producer, header.producer_id, tally)
            kind = int(header.timestamp_type)
            self.timestamp_types[kind] = self.timestamp_types.get(kind, 0) + header.record_count
            if header.is_transactional:
                self.transactions.add(header)
        self._limit_producers()
        compressed_only = [header for header, size in zip(headers, decompressed_sizes, strict=True) if size is None]
        if compressed_only:
            self._add_times(
                np.array([header.max_timestamp for header in compressed_only], dtype=np.int64),
                np.array([header.record_count for header in compressed_only], dtype=np.int64),
                np.array([header.size for header in compressed_only], dtype=np.int64),
            )

    def add_marker(self, header: BatchHeader, batch: memoryview) -> None:
        """Add a control batch."""
        self.control_bytes += header.size
        self.transactions.add_marker(header, batch)

    def add_records(self, sections: Sequence[Section], first_offset: int) -> None:
        """Add the records of decompressed batches.

        :param first_offset: earlier records are not counted: they are deleted, although still part of their batch.
        """
        whole = decode(sections)
        records = whole.between(first_offset, 1 << 62)
        if not len(records.offsets):
            return
        shares = [section.header.size / max(1, section.header.record_count) for section in sections]
        in_log = np.repeat(shares, [section.header.record_count for section in sections])[-len(records.offsets) :]
        self._add_times(records.timestamps_ms, np.ones(len(records.offsets), dtype=np.int64), in_log)
        key_sizes, value_sizes = pc.binary_length(records.keys), pc.binary_length(records.values)
        self.opened += len(records.offsets)
        self.without_value += records.values.null_count
        self.key_sizes.add(_numbers(key_sizes.drop_null()))
        self.value_sizes.add(_numbers(value_sizes.drop_null()))
        sizes = pc.add(pc.fill_null(key_sizes, 0).cast(pa.int64()), pc.fill_null(value_sizes, 0).cast(pa.int64()))
        keyed = records.keys.is_valid()
        self.keyed += len(records.keys) - records.keys.null_count
        self.keys.add(records.keys.drop_null(), sizes.filter(keyed))

    def _add_times(self, times_ms: Numbers, records: Numbers, sizes: np.ndarray[Any, Any]) -> None:
        has_time = times_ms >= 0
        if not has_time.all():
            self.without_time += int(records[~has_time].sum())
            times_ms, records, sizes = times_ms[has_time], records[has_time], sizes[has_time]
        self.rates.add(times_ms, records, sizes)

    def _limit_producers(self) -> None:
        if len(self.by_producer) > 2 * PRODUCERS_KEPT:
            largest = sorted(self.by_producer.items(), key=lambda each: -each[1].size_bytes)
            self.by_producer = dict(largest[:PRODUCERS_KEPT])
            for _, tally in largest[PRODUCERS_KEPT:]:
                _add_tally(self.by_producer, SMALL_PRODUCERS, tally)

    def merge(self, following: Measures) -> None:
        """Merge the measures of the following slice or of another partition."""
        for mine, others in ((self.by_codec, following.by_codec), (self.by_producer, following.by_producer)):
            for name, tally in others.items():
                _add_tally(mine, name, tally)
        self._limit_producers()
        for kind, records in following.timestamp_types.items():
            self.timestamp_types[kind] = self.timestamp_types.get(kind, 0) + records
        self.transactions.merge(following.transactions)
        self.batch_sizes.merge(following.batch_sizes)
        self.key_sizes.merge(following.key_sizes)
        self.value_sizes.merge(following.value_sizes)
        self.rates.merge(following.rates)
        self.keys.merge(following.keys)
        self.opened += following.opened
        self.keyed += following.keyed
        self.without_value += following.without_value
        self.without_time += following.without_time
        self.control_bytes += following.control_bytes

    def compact_keys(self) -> Measures:
        """Compact the key counts in place before the measures are sent to the driver, and return the measures."""
        self.keys.compact()
        return self

    @property
    def total(self) -> Tally:
        """Return the totals of all batches of records."""
        found = Tally()
        for tally in self.by_codec.values():
            found.merge(tally)
        return found


def _add_tally(tallies: dict[int, Tally], name: int, tally: Tally) -> None:
    total = tallies.get(name)
    if total is None:
        total = tallies[name] = Tally()
    total.merge(tally)


def _numbers(sizes: pa.Array) -> Numbers:
    found: Numbers = sizes.to_numpy(zero_copy_only=False).astype(np.int64)
    return found
