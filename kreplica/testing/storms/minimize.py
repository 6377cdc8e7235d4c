"""Finds a minimal set of faults that makes a storm fail (delta debugging, Zeller and Hildebrandt 2002)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kreplica.testing.storms.outcome import Outcome, run_storm


@dataclass(frozen=True, slots=True)
class Minimum:
    """A storm with a minimal set of faults.

    :param outcome: outcome of the storm with only these faults.
    :param runs: number of storms that the search needed.
    """

    outcome: Outcome
    runs: int


def minimize(failed: Outcome, on_attempt: Callable[[Outcome], None] = lambda _: None) -> Minimum:
    """Remove faults while the storm still fails, for any reason.

    :param on_attempt: called with the outcome of each attempt.
    """
    smallest, runs = failed, 0

    def fails(numbers: Sequence[int]) -> bool:
        nonlocal smallest, runs
        outcome = run_storm(failed.seed, failed.options, numbers)
        runs += 1
        on_attempt(outcome)
        if not outcome.clean:
            smallest = outcome
        return not outcome.clean

    minimal_subset([fault.number for fault in failed.plan], fails)
    return Minimum(smallest, runs)


def minimal_subset(numbers: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return a subset for which ``fails`` is true, but which passes if any single number is removed.

    :param numbers: complete set, for which ``fails`` must be true.
    """
    remaining = list(numbers)
    if not remaining or fails([]):
        return []
    parts = min(2, len(remaining))
    while len(remaining) > 1:
        size = -(-len(remaining) // parts)
        parts_to_remove = [remaining[start : start + size] for start in range(0, len(remaining), size)]
        candidates = ([number for number in remaining if number not in part] for part in parts_to_remove)
        smaller = next((candidate for candidate in candidates if fails(candidate)), None)
        if smaller is not None:
            remaining, parts = smaller, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(parts * 2, len(remaining))
    return remaining
