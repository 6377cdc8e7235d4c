"""Pure division of a replay into steps.

Lots, which are batches of an archive or files of a directory, have a fixed order, and each offset is at one place in
it. Therefore a single number, the position, describes the progress of a replay. Step sizes may change between runs: a
run that resumes after a position replays exactly the rest.
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


class TooLarge(KreplicaError):
    """A lot exceeds the range of positions."""


class Lot(NamedTuple):
    """Data read together. Numbers ascend, and the offsets of each partition ascend from lot to lot.

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
    """Data written together.

    :param position: end position.
    :param lots: numbers of the lots that contain it, ascending.
    :param ranges: one per partition, sorted.
    """

    position: int
    lots: tuple[int, ...]
    ranges: tuple[OffsetRange, ...]

    @property
    def size(self) -> int:
        """Number of offsets."""
        return sum(each.size for each in self.ranges)


class Chosen(NamedTuple):
    """Selected part of the source.

    :param topics: None: all.
    :param starts: first offset by partition; default: the first that exists.
    :param ends: end offset by partition, exclusive; default: the last that exists.
    """

    topics: Collection[str] | None = None
    starts: Mapping[TopicPartition, int] = {}
    ends: Mapping[TopicPartition, int] = {}

    def clipped(self, whole: OffsetRange) -> OffsetRange:
        """Return the selected part of a range; may be empty."""
        partition, start, end = whole
        if self.topics is not None and partition.topic not in self.topics:
            return OffsetRange(partition, start, start)
        start = max(start, self.starts.get(partition, start))
        return OffsetRange(partition, start, max(start, min(end, self.ends.get(partition, end))))


def plan_steps(
    lots: Iterable[Lot], chosen: Chosen, *, records_max: int, bytes_max: int, after: int = NOTHING_DONE
) -> list[Step]:
    """Return the steps after a position that contain selected offsets.

    :param records_max: approximate maximum of offsets per step, before selection.
    :param bytes_max: approximate maximum of file bytes per step.
    :raise TooLarge: a lot is too large; the message names it.
    """
    steps = []
    for position, pieces in _cuts(lots, after, records_max, bytes_max):
        ranges: dict[TopicPartition, OffsetRange] = {}
        used = set()
        for lot, first, behind in pieces:
            for each in lot.ranges:
                wanted = chosen.clipped(_part(each, lot.size, first, behind))
                if wanted.size:
                    used.add(lot.number)
                    before = ranges.get(each.partition, wanted)
                    start, end = min(before.start, wanted.start), max(before.end, wanted.end)
                    ranges[each.partition] = OffsetRange(each.partition, start, end)
        if ranges:
            steps.append(Step(position, tuple(sorted(used)), tuple(ranges[each] for each in sorted(ranges))))
    return steps


def _cuts(
    lots: Iterable[Lot], after: int, records_max: int, bytes_max: int
) -> Iterator[tuple[int, list[tuple[Lot, int, int]]]]:
    """Yield (position, [(lot, first offset within it, end within it)])."""
    number, count = (NOTHING_DONE, 0) if after == NOTHING_DONE else (after >> _COUNT_BITS, after & _COUNT_MAX)
    pieces: list[tuple[Lot, int, int]] = []
    room = 1.0
    for lot in sorted(lots, key=lambda each: each.number):
        if lot.size > _COUNT_MAX or lot.number > _NUMBER_MAX:
            raise TooLarge(f"lot {lot.number} has {lot.size:,} offsets: the maximum is {_COUNT_MAX:,}")
        first = 0 if lot.number > number else count if lot.number == number else lot.size
        limit = min(float(records_max), bytes_max * lot.size / lot.size_bytes if lot.size_bytes else records_max)
        while first < lot.size:
            behind = min(lot.size, first + max(1, round(room * limit)))
            pieces.append((lot, first, behind))
            room -= (behind - first) / limit
            first = behind
            # The rest of the step is too small for a part of the next lot, or empty.
            if first < lot.size or room * limit < 0.5:
                yield _position(lot, behind), pieces
                pieces, room = [], 1.0
    if pieces:
        lot, _, behind = pieces[-1]
        yield _position(lot, behind), pieces


def _position(lot: Lot, count: int) -> int:
    return lot.number << _COUNT_BITS | count


def _part(whole: OffsetRange, lot_size: int, first: int, behind: int) -> OffsetRange:
    """Return a partition's proportional share of a part of a lot."""
    start, size = whole.start, whole.size
    return OffsetRange(whole.partition, start + size * first // lot_size, start + size * behind // lot_size)


def lanes(ranges: Iterable[OffsetRange], count: int) -> dict[TopicPartition, int]:
    """Assign partitions to tasks of about equal size: the largest first, to the least loaded task."""
    loads = [0] * count
    found = {}
    for each in sorted(ranges, key=lambda each: (-each.size, each.partition)):
        lane = loads.index(min(loads))
        loads[lane] += each.size
        found[each.partition] = lane
    return found
