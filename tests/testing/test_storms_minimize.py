"""Minimizing the faults of a failing storm."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kreplica.testing.storms.minimize import minimal_subset


def test_one_responsible_fault_is_found_in_a_few_steps() -> None:
    """Finding one responsible fault among a hundred takes about as many runs as bisection."""
    tried: list[Sequence[int]] = []

    def fails(numbers: Sequence[int]) -> bool:
        tried.append(numbers)
        return 61 in numbers

    assert minimal_subset(range(1, 101), fails) == [61]
    assert len(tried) < 25


def test_a_failure_without_faults_needs_none() -> None:
    """If a storm fails without faults, the minimized plan is empty."""
    assert minimal_subset([1, 2, 3], lambda _: True) == []


@given(st.sets(st.integers(1, 40), min_size=1, max_size=5), st.integers(40, 60))
def test_exactly_the_necessary_faults_are_kept(needed: set[int], count: int) -> None:
    """Faults that only fail in combination are all kept."""
    assert minimal_subset(range(1, count + 1), lambda numbers: needed <= set(numbers)) == sorted(needed)


@given(st.lists(st.booleans(), min_size=2, max_size=300))
def test_no_remaining_fault_can_be_omitted(answers: list[bool]) -> None:
    """Whatever the failure depends on, removing one more fault makes the storm pass."""
    known: dict[tuple[int, ...], bool] = {tuple(range(12)): True}
    chances = iter(answers)

    def fails(numbers: Sequence[int]) -> bool:
        return known.setdefault(tuple(numbers), next(chances, False))

    left = minimal_subset(range(12), fails)
    assert known[tuple(left)]
    if len(left) > 1:
        for number in left:
            assert not fails([other for other in left if other != number])
