"""Pure functions that assign offsets to tasks and limit the offsets of a micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kreplica.model import TopicPartition
from kreplica.spark.source.positions import Offsets


class OffsetRange(NamedTuple):
    """Offsets of one partition, read by one task.

    :param end: exclusive.
    """

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of offsets; the number of records may be smaller."""
        return self.end - self.start


def split(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """Split ranges into tasks of about the same size.

    :param min_partitions: approximate minimum number of tasks; each range is split in proportion to its size.
    :param records_max: maximum offsets per task.
    """
    whole = [each for each in ranges if each.size > 0]
    if records_max is not None:
        whole = [part for each in whole for part in _parts(each, -(-each.size // records_max))]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(each.size for each in whole)
    return [part for each in whole for part in _parts(each, max(1, round(min_partitions * each.size / total)))]


def _parts(whole: OffsetRange, count: int) -> list[OffsetRange]:
    count = min(count, whole.size)
    bounds = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [OffsetRange(whole.partition, bounds[index], bounds[index + 1]) for index in range(count)]


def limit_ends(start: Offsets, available: Mapping[TopicPartition, int], count_max: int) -> dict[TopicPartition, int]:
    """Return the end offsets of a micro-batch of about ``count_max`` offsets, in proportion to each partition's
    backlog.

    Every partition with a backlog gets at least one offset, so that none starves.

    :param available: current end of each partition; a partition absent from ``start`` starts at 0.
    """
    backlog = {each: max(0, end - start.get(each, 0)) for each, end in available.items()}
    total = sum(backlog.values())
    if total <= count_max:
        return {each: max(end, start.get(each, 0)) for each, end in available.items()}
    ends = {}
    for each, size in backlog.items():
        share = size * count_max / total
        ends[each] = start.get(each, 0) + (min(size, max(1, int(share))) if size else 0)
    return ends
