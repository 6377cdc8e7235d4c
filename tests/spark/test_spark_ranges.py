"""Offset ranges are split into tasks of about equal size, and micro-batches respect their limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kreplica.model import TopicPartition
from kreplica.spark.source.ranges import OffsetRange, limit_ends, split

SIZES = st.lists(st.integers(0, 10_000), min_size=1, max_size=8)


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


@given(SIZES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 3000))
def test_parts_cover_the_range(sizes, min_partitions, records_max) -> None:
    """Each offset is in one part, parts are in order, and no part is empty or too large."""
    ranges = [OffsetRange(partition(number), 100, 100 + size) for number, size in enumerate(sizes)]
    parts = split(ranges, min_partitions=min_partitions, records_max=records_max)
    assert all(0 < part.size <= (records_max or 10_000) for part in parts)
    for range_ in ranges:
        own = [part for part in parts if part.partition == range_.partition]
        covered = [offset for part in own for offset in (part.start, part.end)]
        assert covered == sorted(covered)
        assert sum(part.size for part in own) == range_.size
    if min_partitions is not None and sum(sizes) >= 100 * min_partitions:
        assert len(parts) >= min_partitions / 2


def test_large_ranges_have_more_parts() -> None:
    """The number of parts is proportional to the size of a range."""
    ranges = [OffsetRange(partition(0), 0, 900), OffsetRange(partition(1), 0, 100)]
    assert [part.partition.partition for part in split(ranges, min_partitions=10)] == [0] * 9 + [1]
    assert split(ranges) == ranges
    assert [part.size for part in split(ranges, records_max=400)] == [300, 300, 300, 100]


@given(SIZES, st.integers(1, 20_000))
def test_micro_batch_is_limited(sizes, count_max) -> None:
    """The limit is shared in proportion to available records, and each partition with records contributes some."""
    available = {partition(number): 50 + size for number, size in enumerate(sizes)}
    start = dict.fromkeys(available, 50)
    ends = limit_ends(start, available, count_max)
    counts = {each: ends[each] - 50 for each in available}
    assert all(0 <= counts[each] <= available[each] - 50 for each in available)
    assert all(counts[each] > 0 for each in available if available[each] > 50)
    assert sum(counts.values()) <= count_max + len(sizes)
    if sum(sizes) <= count_max:
        assert ends == available
