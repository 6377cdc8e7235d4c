"""Which offsets are read by which task, and how many in one micro-batch: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kreplica.model import TopicPartition
from kreplica.spark.source.positions import Offsets


class OffsetRange(NamedTuple):
    """Offsets of one partition, for one task.

    :param end: the first offset that does not belong to it.
    """

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets; there may be fewer records."""
        return self.end - self.start


def split(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """Ranges for tasks: large ones in parts, so that tasks are about equal.

    :param min_partitions: so many at least, about: each range has parts in proportion to its share.
    :param records_max: offsets of one part at most.
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


def limited(start: Offsets, available: Mapping[TopicPartition, int], count_max: int) -> dict[TopicPartition, int]:
    """Where a micro-batch ends that may have so many offsets: each partition gives by its share of the backlog.

    A partition that has something gives one offset at least, so that none starves.

    :param available: where each partition ends now; a partition that ``start`` does not have begins at 0.
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
