"""The fewest faults with which something still fails."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kreplica.testing.storms.minimize import fewest


def test_one_culprit_is_found_in_a_few_steps() -> None:
    """Of a hundred faults the one that matters, in about as many tries as halving takes."""
    tried: list[Sequence[int]] = []

    def fails(numbers: Sequence[int]) -> bool:
        tried.append(numbers)
        return 61 in numbers

    assert fewest(range(1, 101), fails) == [61]
    assert len(tried) < 25


def test_what_fails_without_any_fault_needs_none() -> None:
    """A cluster that is broken by itself is shown so."""
    assert fewest([1, 2, 3], lambda _: True) == []


@given(st.sets(st.integers(1, 40), min_size=1, max_size=5), st.integers(40, 60))
def test_all_that_is_needed_stays_and_nothing_else(needed: set[int], count: int) -> None:
    """Several faults that only together make it fail are all kept."""
    assert fewest(range(1, count + 1), lambda numbers: needed <= set(numbers)) == sorted(needed)


@given(st.lists(st.booleans(), min_size=2, max_size=300))
def test_none_of_the_rest_can_be_left_out(answers: list[bool]) -> None:
    """Whatever fails in whatever way: without any one of what is left it does not."""
    known: dict[tuple[int, ...], bool] = {tuple(range(12)): True}
    chances = iter(answers)

    def fails(numbers: Sequence[int]) -> bool:
        return known.setdefault(tuple(numbers), next(chances, False))

    left = fewest(range(12), fails)
    assert known[tuple(left)]
    if len(left) > 1:
        for number in left:
            assert not fails([other for other in left if other != number])
