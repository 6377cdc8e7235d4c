"""Mutation score: for each disabled guard, the checks that detect it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context

from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.options import options_of
from kreplica.testing.storms.outcome import Cause, run_storm
from kreplica.testing.storms.sweep import disable_logging
from tests.support.mutations.guard import Guard, without
from tests.support.mutations.guards import GUARDS

SCENARIO_SEED = 1
CATCHES_MAX = 3


@dataclass(frozen=True, slots=True)
class Score:
    """Result for one disabled guard.

    :param number: index of the guard in ``GUARDS``.
    :param scenario: name of the guard's scenario.
    :param scenario_said: the scenario's failure; empty if it passed.
    :param scenario_caught: True if the scenario failed as the guard specifies.
    :param storms: number of storms that ran.
    :param caught: seeds of the storms that found a violated invariant.
    :param stuck: seeds of the storms that did not end in time, which can have many other causes.
    :param storm_said: failure of the first storm in ``caught``, else in ``stuck``, else of the first that failed.
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
        """True if the scenario failed as specified, or a storm found a violated invariant."""
        return self.scenario_caught or bool(self.caught)

    @property
    def what_broke(self) -> str:
        """The failure that reveals the mutant; if it was not caught, any failure."""
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
    """Disable one guard after another, each in a separate process, and yield scores as they are finished.

    :param seeds: seeds of storms to run in addition to the scenarios.
    :param jobs: number of guards tested in parallel.
    :param catches_max: number of storms that must detect a guard before the others are skipped.
    :param chosen: options of the storms that do not depend on the seed.
    :param numbers: indexes of guards in ``GUARDS``; None for all.
    """
    wanted = range(len(GUARDS)) if numbers is None else numbers
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=disable_logging, max_tasks_per_child=1) as pool:
        waiting = [pool.submit(score_guard, number, list(seeds), catches_max, dict(chosen or {})) for number in wanted]
        for each in as_completed(waiting):
            yield each.result()


def score_guard(number: int, seeds: Sequence[int], catches_max: int, chosen: Mapping[str, str]) -> Score:
    """Return the score of one guard."""
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
        except Exception as error:  # not a violated invariant, even if the message matches
            return f"{type(error).__name__} was raised"
    return ""
