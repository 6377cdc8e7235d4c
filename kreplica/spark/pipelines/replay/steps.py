"""In which steps an archive is replayed: pure.

Lots, which are batches of an archive or files of a directory, are in a fixed order, and an offset is at one place in
it.  So a position, which is one number, says what was replayed, and steps may be as large as anybody likes: whoever
goes on behind a position replays what comes after it, and nothing else.
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
    """A lot that positions have no room for."""


class Lot(NamedTuple):
    """What is read together; ``number`` ascends, and each partition's offsets do from lot to lot.

    :param size_bytes: of its files.
    """

    number: int
    ranges: tuple[OffsetRange, ...]
    size_bytes: int = 0

    @property
    def size(self) -> int:
        """How many offsets."""
        return sum(each.size for each in self.ranges)


class Step(NamedTuple):
    """What is written at once.

    :param position: behind it.
    :param lots: the numbers of those that hold it, ascending.
    :param ranges: of its partitions, one each, sorted.
    """

    position: int
    lots: tuple[int, ...]
    ranges: tuple[OffsetRange, ...]

    @property
    def size(self) -> int:
        """How many offsets."""
        return sum(each.size for each in self.ranges)


class Chosen(NamedTuple):
    """What of all is wanted.

    :param topics: None: all.
    :param starts: by partition; others from their first offset on.
    :param ends: others up to their last.
    """

    topics: Collection[str] | None = None
    starts: Mapping[TopicPartition, int] = {}
    ends: Mapping[TopicPartition, int] = {}

    def clipped(self, whole: OffsetRange) -> OffsetRange:
        """What is wanted of a range; empty where nothing is."""
        partition, start, end = whole
        if self.topics is not None and partition.topic not in self.topics:
            return OffsetRange(partition, start, start)
        start = max(start, self.starts.get(partition, start))
        return OffsetRange(partition, start, max(start, min(end, self.ends.get(partition, end))))


def plan_steps(
    lots: Iterable[Lot], chosen: Chosen, *, records_max: int, bytes_max: int, after: int = NOTHING_DONE
) -> list[Step]:
    """The steps behind a position that hold something that is wanted.

    :param records_max: of a step, about: it counts offsets, before anything is chosen.
    :param bytes_max: of the files' bytes that hold a step, about.
    :raise TooLarge: naming the lot.
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
    """(position, [(lot, from which of its offsets on, before which)])."""
    number, count = (NOTHING_DONE, 0) if after == NOTHING_DONE else (after >> _COUNT_BITS, after & _COUNT_MAX)
    pieces: list[tuple[Lot, int, int]] = []
    room = 1.0
    for lot in sorted(lots, key=lambda each: each.number):
        if lot.size > _COUNT_MAX or lot.number > _NUMBER_MAX:
            raise TooLarge(f"lot {lot.number} has {lot.size:,} offsets: {_COUNT_MAX:,} is the most")
        first = 0 if lot.number > number else count if lot.number == number else lot.size
        limit = min(float(records_max), bytes_max * lot.size / lot.size_bytes if lot.size_bytes else records_max)
        while first < lot.size:
            behind = min(lot.size, first + max(1, round(room * limit)))
            pieces.append((lot, first, behind))
            room -= (behind - first) / limit
            first = behind
            # What is left of a step is not worth a piece of the next lot, or was all of it.
            if first < lot.size or room * limit < 0.5:
                yield _position(lot, behind), pieces
                pieces, room = [], 1.0
    if pieces:
        lot, _, behind = pieces[-1]
        yield _position(lot, behind), pieces


def _position(lot: Lot, count: int) -> int:
    return lot.number << _COUNT_BITS | count


def _part(whole: OffsetRange, lot_size: int, first: int, behind: int) -> OffsetRange:
    """A partition's share of some of a lot's offsets: each gives in proportion."""
    start, size = whole.start, whole.size
    return OffsetRange(whole.partition, start + size * first // lot_size, start + size * behind // lot_size)


def lanes(ranges: Iterable[OffsetRange], count: int) -> dict[TopicPartition, int]:
    """Which of some tasks has each partition, so that all have about as much: the largest first, to who has least."""
    loads = [0] * count
    found = {}
    for each in sorted(ranges, key=lambda each: (-each.size, each.partition)):
        lane = loads.index(min(loads))
        loads[lane] += each.size
        found[each.partition] = lane
    return found
