"""The score of the tests themselves: for every guard that is taken away, what sees a rule broken."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.options import options_of
from kreplica.testing.storms.outcome import Cause, run_storm
from kreplica.testing.storms.sweep import keep_quiet
from tests.support.mutations.guard import Guard, without
from tests.support.mutations.guards import GUARDS

SCENARIO_SEED = 1
CATCHES_MAX = 3


@dataclass(frozen=True, slots=True)
class Score:
    """What came of one guard's absence.

    :param number: its place in ``GUARDS``.
    :param scenario: the name of its scenario.
    :param scenario_said: how that failed; empty where it noticed nothing.
    :param scenario_caught: whether that is what the guard says to break.
    :param storms: that were run.
    :param caught: the seeds of those in which a rule was broken.
    :param stuck: the seeds of those that did not end in time, which many a mistake of another kind may do.
    :param storm_said: how the first that was caught failed, else the first that was stuck, else the first that failed.
    """

    number: int
    guard: str
    scenario: str
    scenario_said: str
    scenario_caught: bool
    storms: int
    caught: tuple[int, ...]
    stuck: tuple[int, ...]
    storm_said: str

    @property
    def is_caught(self) -> bool:
        """Whether a rule was broken anywhere."""
        return self.scenario_caught or bool(self.caught)

    @property
    def what_broke(self) -> str:
        """How that showed; where nothing was caught, how anything failed at all, if it did."""
        said = [self.scenario_said, self.storm_said] if self.scenario_caught else [self.storm_said, self.scenario_said]
        return said[0] or said[1]


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
    failed: dict[Cause, dict[int, str]] = {cause: {} for cause in Cause}
    storms = 0
    with without(guard):
        scenario_said = _scenario(guard)
        for seed in seeds:
            if len(failed[Cause.RULE]) >= catches_max:
                break
            storms += 1
            outcome = run_storm(seed, options_of(seed, chosen))
            if outcome.cause is not None:
                failed[outcome.cause][seed] = outcome.failure
    return Score(
        number=number,
        guard=guard.name,
        scenario=guard.scenario.__name__,
        scenario_said=scenario_said.partition("\n")[0],
        scenario_caught=bool(scenario_said and re.search(guard.breaks, scenario_said)),
        storms=storms,
        caught=tuple(failed[Cause.RULE]),
        stuck=tuple(failed[Cause.TIME]),
        storm_said=next((said for by_seed in failed.values() for said in by_seed.values()), ""),
    )


def _scenario(guard: Guard) -> str:
    with deferred_collection():
        try:
            guard.scenario(SCENARIO_SEED)
        except (AssertionError, TimeoutError) as error:
            return str(error) or type(error).__name__
        except Exception as error:  # no rule has this name, whatever its text
            return f"{type(error).__name__} was raised"
    return ""
