"""Mergeable summaries of millions of values, independent of order.

Sums, extremes and counts are exact, except the counts of individual keys (``Keys.error``). Quantiles and distinct
counts are accurate to 2 %; distinct counts below ``HASHES_MAX`` are exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kreplica.spark.sink.partitioning import murmur2

Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Hashes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"

_MANTISSA_BITS = 6
_EXACT_END = 2 << _MANTISSA_BITS
"""Each value below this limit has its own bucket; larger values of the same bit length share a bucket if their first
seven bits are equal.
"""

HASHES_MAX = 1 << 14
KEYS_MAX = 1 << 15
"""Maximum number of keys whose counts are kept, per slice and in total: the most frequent ones."""

PENDING_ROWS_MAX = 8 * KEYS_MAX
VECTOR_HASHED_SIZE_MAX = 256
"""Maximum size in bytes of a key that is hashed with others in one pass; longer keys are hashed one by one."""

MINUTE_MS = 60_000
WIDTHS_MS = (MINUTE_MS, 60 * MINUTE_MS, 24 * 60 * MINUTE_MS, 365 * 24 * 60 * MINUTE_MS, 1 << 62)
BUCKETS_MAX = 10_080
"""One week in minutes."""

_SECOND_SEED = 0x5851F42D


class Sizes:
    """Histogram of sizes of keys, values or batches, in bytes."""

    def __init__(self) -> None:
        self.count = self.total = self.largest = 0
        self.smallest: int | None = None
        self._buckets: Numbers = np.zeros(0, dtype=np.int64)

    def add(self, sizes: Numbers) -> None:
        """Count sizes."""
        if not sizes.size:
            return
        smallest = int(sizes.min())
        self.count += sizes.size
        self.total += int(sizes.sum())
        self.largest = max(self.largest, int(sizes.max()))
        self.smallest = smallest if self.smallest is None else min(self.smallest, smallest)
        self._buckets = _sum(self._buckets, np.bincount(_bucket_of(sizes)))

    def merge(self, other: Sizes) -> None:
        """Add the counts of another histogram."""
        if other.smallest is None:
            return
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)
        self.smallest = other.smallest if self.smallest is None else min(self.smallest, other.smallest)
        self._buckets = _sum(self._buckets, other._buckets)

    def quantile(self, share: float) -> int:
        """Return a quantile of the sizes, rounded down by at most 2 %; 0 if there are none.

        :param share: 0.5 for the median.
        """
        if self.smallest is None:
            return 0
        cumulative = np.cumsum(self._buckets)
        bucket = int(np.searchsorted(cumulative, max(1, int(np.ceil(share * self.count)))))
        return min(max(_lowest_of(bucket), self.smallest), self.largest)


def _bucket_of(sizes: Numbers) -> Numbers:
    shifts: Numbers = np.maximum(np.frexp(sizes.astype(np.float64))[1].astype(np.int64) - 1 - _MANTISSA_BITS, 0)
    return (shifts << _MANTISSA_BITS) + (sizes >> shifts)


def _lowest_of(bucket: int) -> int:
    if bucket < _EXACT_END:
        return bucket
    shift = (bucket >> _MANTISSA_BITS) - 1
    return (bucket - (shift << _MANTISSA_BITS)) << shift


def _sum(first: Numbers, second: Numbers) -> Numbers:
    longer, shorter = (first, second) if first.size >= second.size else (second, first)
    total: Numbers = longer.astype(np.int64)
    total[: shorter.size] += shorter
    return total


class Bucket(NamedTuple):
    """Number and size of the records with timestamps in ``[start_ms, start_ms + Rates.width_ms)``."""

    start_ms: int
    records: int
    size_bytes: int


class Rates:
    """Records and bytes per minute, or per hour, day or longer if there are too many buckets."""

    def __init__(self) -> None:
        self.width_ms = WIDTHS_MS[0]
        self._counts: dict[int, tuple[int, int]] = {}

    def add(self, times_ms: Numbers, records: Numbers, sizes: np.ndarray[Any, Any]) -> None:
        """Count records and bytes at the given times."""
        indexes, inverse = np.unique(times_ms // self.width_ms, return_inverse=True)
        counts = np.bincount(inverse, weights=records)
        totals = np.bincount(inverse, weights=sizes)
        rows = np.stack((indexes, counts.round().astype(np.int64), totals.round().astype(np.int64)), axis=1)
        self._add_all(map(tuple, rows.tolist()))

    def merge(self, other: Rates) -> None:
        """Add the counts of another time series."""
        self._widen(other.width_ms)
        factor = self.width_ms // other.width_ms
        self._add_all((index // factor, records, size) for index, (records, size) in other._counts.items())

    def _add_all(self, rows: Iterable[tuple[int, int, int]]) -> None:
        for index, records, size in rows:
            known = self._counts.get(index, (0, 0))
            self._counts[index] = (known[0] + records, known[1] + size)
        if len(self._counts) > BUCKETS_MAX:
            self._widen(next(width for width in WIDTHS_MS if width > self.width_ms))

    def _widen(self, width_ms: int) -> None:
        if width_ms <= self.width_ms:
            return
        factor, counts = width_ms // self.width_ms, self._counts
        self.width_ms, self._counts = width_ms, {}
        self._add_all((index // factor, records, size) for index, (records, size) in counts.items())

    def buckets(self) -> list[Bucket]:
        """Return the nonempty buckets in chronological order."""
        return [Bucket(index * self.width_ms, *self._counts[index]) for index in sorted(self._counts)]


class KeyCount(NamedTuple):
    """Number and size of the records with one key."""

    key: bytes
    records: int
    size_bytes: int


class Keys:
    """Counts of distinct and frequent keys.

    :ivar error: maximum number of records that the count of a key omits.
    """

    def __init__(self) -> None:
        self.error = 0
        self._hashes: Hashes = np.zeros(0, dtype=np.uint64)
        self._counts: pa.Table | None = None
        self._pending: list[pa.Table] = []
        self._pending_rows = 0

    def add(self, keys: pa.Array, sizes: pa.Array) -> None:
        """Count keys.

        :param keys: the key of each record, without nulls.
        :param sizes: the size of each record.
        """
        if len(keys):
            rows = pa.table({"key": keys, "records": pa.repeat(pa.scalar(1, pa.int64()), len(keys)), "size": sizes})
            counted = _sum_by_key(rows)
            self._add_hashes(_hashes_of(counted["key"].combine_chunks()))
            self._add_counts(counted)

    def merge(self, other: Keys) -> None:
        """Add the counts of another instance."""
        self.error += other.error
        self._add_hashes(other._hashes)
        for counted in other._tables():
            self._add_counts(counted)
        self.compact()

    def _tables(self) -> list[pa.Table]:
        return [*self._pending, *([] if self._counts is None else [self._counts])]

    def _add_counts(self, counted: pa.Table) -> None:
        self._pending.append(counted)
        self._pending_rows += counted.num_rows
        if self._pending_rows > PENDING_ROWS_MAX:
            self.compact()

    def compact(self) -> None:
        """Aggregate the pending counts and keep only the most frequent keys, to limit memory."""
        counted = _sum_by_key(pa.concat_tables(self._tables())) if self._pending else self._counts
        self._pending, self._pending_rows = [], 0
        if counted is not None and counted.num_rows > KEYS_MAX:
            counted = self._keep_frequent(counted)
        self._counts = counted

    def _keep_frequent(self, counted: pa.Table) -> pa.Table:
        """Keep the most frequent keys (Misra-Gries): each count is reduced by that of the first omitted key."""
        records = counted["records"].to_numpy()
        cut = int(np.partition(records, -KEYS_MAX - 1)[-KEYS_MAX - 1])
        self.error += cut
        frequent = counted.filter(pc.greater(counted["records"], cut))
        return frequent.set_column(1, "records", pc.subtract(frequent["records"], cut))

    def _add_hashes(self, hashes: Hashes) -> None:
        if self._hashes.size == HASHES_MAX:
            hashes = hashes[hashes < self._hashes[-1]]
        self._hashes = np.union1d(self._hashes, hashes)[:HASHES_MAX]

    @property
    def distinct(self) -> int:
        """Number of distinct keys among the counted records."""
        if self._hashes.size < HASHES_MAX:
            return int(self._hashes.size)
        # The k-th smallest of n uniformly distributed numbers is about k / n.
        return round((HASHES_MAX - 1) / (float(self._hashes[-1]) / 2.0**64))

    @property
    def is_exact(self) -> bool:
        """True if ``distinct`` and the counts are exact."""
        return self._hashes.size < HASHES_MAX and not self.error

    def top(self, count: int) -> list[KeyCount]:
        """Return the most frequent keys."""
        self.compact()
        if self._counts is None:
            return []
        rows = self._counts.take(pc.select_k_unstable(self._counts, count, [("records", "descending")]))
        found = [KeyCount(row["key"], row["records"], row["size"]) for row in rows.to_pylist()]
        return sorted(found, key=lambda each: (-each.records, each.key))


def _sum_by_key(rows: pa.Table) -> pa.Table:
    summed = rows.group_by("key").aggregate([("records", "sum"), ("size", "sum")])
    return pa.table({"key": summed["key"], "records": summed["records_sum"], "size": summed["size_sum"]})


def _hashes_of(keys: pa.Array) -> Hashes:
    is_long = pc.greater(pc.binary_length(keys), VECTOR_HASHED_SIZE_MAX)
    if not pc.any(is_long).as_py():
        first, second = murmur2(keys), murmur2(keys, _SECOND_SEED)
        combined: Hashes = (first.astype(np.uint64) << np.uint64(32)) | second.astype(np.uint64)
        return combined
    digests = [blake2b(key, digest_size=8).digest() for key in keys.filter(is_long).to_pylist()]
    return np.append(_hashes_of(keys.filter(pc.invert(is_long))), np.frombuffer(b"".join(digests), dtype=np.uint64))
