"""Steps of a replay: whatever the sizes and restarts, each offset is in one step."""

from __future__ import annotations

from random import Random

import pytest

from kreplica.model import TopicPartition
from kreplica.spark.pipelines.replay.steps import (
    NOTHING_DONE,
    Selection,
    SourceUnit,
    SourceUnitTooLarge,
    Step,
    assign_tasks,
    plan_steps,
)
from kreplica.spark.source.ranges import OffsetRange

P0, P1, Q0 = TopicPartition("p", 0), TopicPartition("p", 1), TopicPartition("q", 0)
ALL = Selection()


def random_units(random: Random) -> list[SourceUnit]:
    """Return source units as in an archive, with consecutive ranges of each partition."""
    ends = {P0: 100, P1: 0, Q0: 7}
    found = []
    for number in random.sample(range(100), random.randint(1, 12)):
        sizes = {each: random.choice((0, 1, 5, 40, 1000)) for each in ends}
        found.append((number, sizes))
    units = []
    for number, sizes in sorted(found, key=lambda each: each[0]):
        ranges = tuple(OffsetRange(each, ends[each], ends[each] + size) for each, size in sizes.items() if size)
        units.append(SourceUnit(number, ranges, random.choice((0, 1000, 100_000))))
        ends = {each: ends[each] + size for each, size in sizes.items()}
    return units


def offsets(steps: list[Step]) -> list[tuple[TopicPartition, int]]:
    return [(each.partition, offset) for step in steps for each in step.ranges for offset in range(*each[1:])]


@pytest.mark.parametrize("seed", range(40))
def test_each_offset_is_in_one_step(seed: int) -> None:
    """Later runs, with other limits and more units, continue earlier ones, and each offset is in one step."""
    random = Random(seed)
    all_units = random_units(random)
    expected = [(each.partition, offset) for unit in all_units for each in unit.ranges for offset in range(*each[1:])]
    done: list[Step] = []
    after = NOTHING_DONE
    for last in [*sorted(random.choices(range(len(all_units)), k=4)), len(all_units)]:
        planned = plan_steps(
            all_units[:last], ALL, records_max=random.choice((1, 7, 100, 5000)),
            bytes_max=random.choice((10, 500, 10**9)), after=after,
        )  # fmt: skip
        executed = planned if last == len(all_units) else planned[: random.randint(0, len(planned))]
        done += executed
        after = done[-1].position if done else after
        assert [step.position for step in planned] == sorted({step.position for step in planned})
        assert all(step.position > after for step in planned[len(executed) :])
    found = offsets(done)
    assert sorted(found) == sorted(expected)
    for partition in (P0, P1, Q0):
        own = [offset for each, offset in found if each == partition]
        assert own == sorted(own)


def test_steps_are_bounded_and_full() -> None:
    """Offsets and bytes of a step are limited, and small units are combined into one step."""
    many = [SourceUnit(number, (OffsetRange(P0, 10 * number, 10 * number + 10),), 100) for number in range(100)]
    assert [step.size for step in plan_steps(many, ALL, records_max=250, bytes_max=10**9)] == [250] * 4
    assert [step.size for step in plan_steps(many, ALL, records_max=10**9, bytes_max=5000)] == [500] * 2
    assert plan_steps(many, ALL, records_max=250, bytes_max=10**9)[0].units == tuple(range(25))
    unit = SourceUnit(3, (OffsetRange(P0, 0, 600), OffsetRange(P1, 0, 200)), 0)
    one = plan_steps([unit], ALL, records_max=80, bytes_max=1)
    assert [[each.size for each in step.ranges] for step in one] == [[60, 20]] * 10


def test_only_selected_ranges_are_planned() -> None:
    """Excluded topics and offsets are in no step, and there are no empty steps."""
    both = [SourceUnit(0, (OffsetRange(P0, 0, 100), OffsetRange(Q0, 0, 100)))]
    chosen = Selection({"p"}, {P0: 30}, {P0: 60})
    steps = plan_steps(both, chosen, records_max=20, bytes_max=1)
    assert [each.partition for step in steps for each in step.ranges] == [P0] * 3
    assert [each[1:] for step in steps for each in step.ranges] == [(30, 40), (40, 50), (50, 60)]
    assert plan_steps(both, Selection({"x"}), records_max=20, bytes_max=1) == []


def test_oversized_source_unit() -> None:
    """A unit whose positions do not fit into 32 bits is refused."""
    with pytest.raises(SourceUnitTooLarge, match="source unit 5 has"):
        plan_steps([SourceUnit(5, (OffsetRange(P0, 0, 1 << 32),))], ALL, records_max=1 << 40, bytes_max=1)


def test_lanes_are_balanced() -> None:
    """A partition that is as large as all others together has its own lane."""
    ranges = [OffsetRange(P0, 0, 10), OffsetRange(P1, 0, 4), OffsetRange(Q0, 0, 5)]
    assert assign_tasks(ranges, 2) == {P0: 0, P1: 1, Q0: 1}
    assert assign_tasks(ranges, 1) == dict.fromkeys((P0, P1, Q0), 0)
