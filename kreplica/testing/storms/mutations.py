"""The score of the tests themselves: for every guard that is taken away, which scenario and how many storms notice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from kreplica.testing.storms.burial import burial
from kreplica.testing.storms.guards import GUARDS, Guard, without
from kreplica.testing.storms.options import options_of
from kreplica.testing.storms.outcome import run_storm
from kreplica.testing.storms.sweep import keep_quiet

SCENARIO_SEED = 1
CATCHES_MAX = 3


@dataclass(frozen=True, slots=True)
class Score:
    """What came of one guard's absence.

    :param number: its place in ``GUARDS``.
    :param scenario: the name of its scenario.
    :param scenario_said: how that failed; empty where it noticed nothing.
    :param storms: that were run.
    :param caught: the seeds of those that failed.
    :param storm_said: how the first of them did.
    """

    number: int
    guard: str
    scenario: str
    scenario_said: str
    storms: int
    caught: tuple[int, ...]
    storm_said: str

    @property
    def is_caught(self) -> bool:
        """Whether anything noticed."""
        return bool(self.scenario_said or self.caught)


def score(
    seeds: Sequence[int] = (),
    *,
    jobs: int = 1,
    catches_max: int = CATCHES_MAX,
    chosen: Mapping[str, str] | None = None,
    numbers: Sequence[int] | None = None,
) -> Iterator[Score]:
    """Take away one guard after the other, each in a process of its own; scores come as they are ready.

    :param seeds: of storms, besides the scenarios.
    :param jobs: guards at once.
    :param catches_max: so many storms that notice are enough for a guard.
    :param chosen: options of the storms that are not left to the seeds.
    :param numbers: of the guards, as ``GUARDS`` has them; None for all.
    """
    wanted = range(len(GUARDS)) if numbers is None else numbers
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=keep_quiet, max_tasks_per_child=1) as pool:
        waiting = [pool.submit(score_guard, number, list(seeds), catches_max, dict(chosen or {})) for number in wanted]
        for each in as_completed(waiting):
            yield each.result()


def score_guard(number: int, seeds: Sequence[int], catches_max: int, chosen: Mapping[str, str]) -> Score:
    """One guard's score."""
    guard = GUARDS[number]
    storms, storm_said = 0, ""
    caught: list[int] = []
    with without(guard):
        scenario_said = _scenario(guard)
        for seed in seeds:
            if len(caught) >= catches_max:
                break
            storms += 1
            outcome = run_storm(seed, options_of(seed, chosen))
            if not outcome.clean:
                caught.append(seed)
                storm_said = storm_said or outcome.failure
    return Score(number, guard.name, guard.scenario.__name__, scenario_said, storms, tuple(caught), storm_said)


def _scenario(guard: Guard) -> str:
    with burial():
        try:
            guard.scenario(SCENARIO_SEED)
        except Exception as error:
            return (str(error).splitlines() or [type(error).__name__])[0]
    return ""
