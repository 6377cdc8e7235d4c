"""Divides a replay into steps; pure functions.

A source unit is a batch of an archive or a file of a directory. Units have a fixed order, and each offset has one
position in that order. A single number, the position, therefore describes the progress of a replay. Step sizes may
change between runs: a run that resumes after a position replays exactly the remaining offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from kreplica.errors import KreplicaError
from kreplica.model import TopicPartition
from kreplica.spark.source.ranges import OffsetRange

NOTHING_DONE = -1
_COUNT_BITS = 32
_COUNT_MAX = (1 << _COUNT_BITS) - 1
_NUMBER_MAX = (1 << 30) - 1


class SourceUnitTooLarge(KreplicaError):
    """A source unit has a larger number, or more offsets, than a position can represent."""


class SourceUnit(NamedTuple):
    """A batch of an archive, or a file of a directory. The offsets of each partition ascend with the units' numbers.

    :param size_bytes: size of its files.
    """

    number: int
    ranges: tuple[OffsetRange, ...]
    size_bytes: int = 0

    @property
    def size(self) -> int:
        """Number of offsets."""
        return sum(each.size for each in self.ranges)


class Step(NamedTuple):
    """Records written as one batch of the sink.

    :param position: end position.
    :param units: numbers of the units that contain the records, ascending.
    :param ranges: one per partition, sorted.
    """

    position: int
    units: tuple[int, ...]
    ranges: tuple[OffsetRange, ...]

    @property
    def size(self) -> int:
        """Number of offsets."""
        return sum(each.size for each in self.ranges)


class Selection(NamedTuple):
    """Selected part of the source.

    :param topics: None: all.
    :param starts: first offset by partition; default: the start of the source.
    :param ends: end offset by partition, exclusive; default: the end of the source.
    """

    topics: Collection[str] | None = None
    starts: Mapping[TopicPartition, int] = {}
    ends: Mapping[TopicPartition, int] = {}

    def clip(self, whole: OffsetRange) -> OffsetRange:
        """Return the selected part of a range; may be empty."""
        partition, start, end = whole
        if self.topics is not None and partition.topic not in self.topics:
            return OffsetRange(partition, start, start)
        start = max(start, self.starts.get(partition, start))
        return OffsetRange(partition, start, max(start, min(end, self.ends.get(partition, end))))


def plan_steps(
    units: Iterable[SourceUnit], selection: Selection, *, records_max: int, bytes_max: int, after: int = NOTHING_DONE
) -> list[Step]:
    """Return the steps after a position that contain selected offsets.

    :param records_max: approximate maximum of offsets per step, before selection.
    :param bytes_max: approximate maximum of file bytes per step.
    :raise SourceUnitTooLarge: a source unit has too many offsets, or too large a number.
    """
    steps = []
    for position, parts in _divide(units, after, records_max, bytes_max):
        ranges: dict[TopicPartition, OffsetRange] = {}
        used = set()
        for unit, first, end_index in parts:
            for each in unit.ranges:
                selected = selection.clip(_share_of(each, unit.size, first, end_index))
                if selected.size:
                    used.add(unit.number)
                    merged = ranges.get(each.partition, selected)
                    start, end = min(merged.start, selected.start), max(merged.end, selected.end)
                    ranges[each.partition] = OffsetRange(each.partition, start, end)
        if ranges:
            steps.append(Step(position, tuple(sorted(used)), tuple(ranges[each] for each in sorted(ranges))))
    return steps


def _divide(
    units: Iterable[SourceUnit], after: int, records_max: int, bytes_max: int
) -> Iterator[tuple[int, list[tuple[SourceUnit, int, int]]]]:
    """Yield (position, [(unit, first offset within it, end within it)])."""
    number, count = (NOTHING_DONE, 0) if after == NOTHING_DONE else (after >> _COUNT_BITS, after & _COUNT_MAX)
    parts: list[tuple[SourceUnit, int, int]] = []
    remaining_share = 1.0
    for unit in sorted(units, key=lambda each: each.number):
        if unit.size > _COUNT_MAX or unit.number > _NUMBER_MAX:
            raise SourceUnitTooLarge(
                f"source unit {unit.number} has {unit.size:,} offsets: a replay supports unit numbers up to "
                f"{_NUMBER_MAX:,} and {_COUNT_MAX:,} offsets per unit"
            )
        first = 0 if unit.number > number else count if unit.number == number else unit.size
        limit = min(float(records_max), bytes_max * unit.size / unit.size_bytes if unit.size_bytes else records_max)
        while first < unit.size:
            end_index = min(unit.size, first + max(1, round(remaining_share * limit)))
            parts.append((unit, first, end_index))
            remaining_share -= (end_index - first) / limit
            first = end_index
            # The step is full, or has too little room for a part of the next unit.
            if first < unit.size or remaining_share * limit < 0.5:
                yield _position(unit, end_index), parts
                parts, remaining_share = [], 1.0
    if parts:
        unit, _, end_index = parts[-1]
        yield _position(unit, end_index), parts


def _position(unit: SourceUnit, count: int) -> int:
    return unit.number << _COUNT_BITS | count


def _share_of(whole: OffsetRange, unit_size: int, first: int, end_index: int) -> OffsetRange:
    """Return the offsets of one partition in a part of a unit; the part contains the same share of every partition."""
    start, size = whole.start, whole.size
    return OffsetRange(whole.partition, start + size * first // unit_size, start + size * end_index // unit_size)


def assign_tasks(ranges: Iterable[OffsetRange], count: int) -> dict[TopicPartition, int]:
    """Assign partitions to tasks of about equal size: the largest first, to the least loaded task."""
    loads = [0] * count
    found = {}
    for each in sorted(ranges, key=lambda each: (-each.size, each.partition)):
        lane = loads.index(min(loads))
        loads[lane] += each.size
        found[each.partition] = lane
    return found
