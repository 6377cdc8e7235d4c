"""The fewest faults with which a storm still fails (delta debugging, Zeller and Hildebrandt 2002)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kreplica.testing.storms.outcome import Outcome, run_storm


@dataclass(frozen=True, slots=True)
class Minimum:
    """What is left of a storm.

    :param outcome: of the storm with these faults alone.
    :param runs: how many storms it took to find them.
    """

    outcome: Outcome
    runs: int


def minimize(failed: Outcome, tried: Callable[[Outcome], None] = lambda _: None) -> Minimum:
    """Leave out faults as long as the storm fails, in whatever way.

    :param failed: a storm that failed.
    :param tried: told of each storm on the way.
    """
    smallest, runs = failed, 0

    def fails(numbers: Sequence[int]) -> bool:
        nonlocal smallest, runs
        outcome = run_storm(failed.seed, failed.options, numbers)
        runs += 1
        tried(outcome)
        if not outcome.clean:
            smallest = outcome
        return not outcome.clean

    fewest([fault.number for fault in failed.plan], fails)
    return Minimum(smallest, runs)


def fewest(numbers: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """A part of the numbers of which none can be left out: without any one of them, nothing fails.

    :param numbers: with all of them it fails.
    :param fails: whether it fails with these alone.
    """
    left = list(numbers)
    if not left or fails([]):
        return []
    parts = min(2, len(left))
    while len(left) > 1:
        size = -(-len(left) // parts)
        cuts = [left[start : start + size] for start in range(0, len(left), size)]
        without = ([number for number in left if number not in cut] for cut in cuts)
        smaller = next((rest for rest in without if fails(rest)), None)
        if smaller is not None:
            left, parts = smaller, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(parts * 2, len(left))
    return left
