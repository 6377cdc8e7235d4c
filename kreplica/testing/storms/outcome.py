"""One storm from its seed to its verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from traceback import format_exception

from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.journals import check_journals
from kreplica.testing.storms.log_watch import LogWatch, UnexpectedLog
from kreplica.testing.storms.options import StormOptions
from kreplica.testing.storms.plan import Fault, numbered
from kreplica.testing.storms.replicated_run import ProgramFailed
from kreplica.testing.storms.storm import Storm, planned


class Cause(Enum):
    """What a storm failed by."""

    RULE = "broke a rule"
    TIME = "took too long"
    ERROR = "raised an error"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a storm ended; the same for the same seed, options and faults, but for ``wall_s``.

    :param plan: the faults that were to happen.
    :param virtual_s: how long it lasted in all, the start and the return of everything included.
    :param wall_s: how long that took.
    :param events: that happened.
    :param acknowledged: records.
    :param failure: what was wrong, in a line; empty where nothing was.
    :param cause: what kind of thing that was; None where nothing was.
    :param details: the traceback of it.
    :param story: what was done to the cluster, a line each.
    """

    seed: int
    options: StormOptions
    plan: tuple[Fault, ...]
    virtual_s: float
    wall_s: float
    events: int
    acknowledged: int
    failure: str
    cause: Cause | None
    details: str
    story: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not self.failure


def run_storm(
    seed: int,
    options: StormOptions,
    only: Collection[int] | None = None,
    trace: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one storm, whatever comes of it.

    :param only: numbers of the faults that are to happen; None for all.
    :param trace: called with one line per event.
    """
    with deferred_collection():
        return run_unburied(seed, options, only, trace)


def run_unburied(
    seed: int,
    options: StormOptions,
    only: Collection[int] | None = None,
    trace: Callable[[str], None] | None = None,
) -> Outcome:
    """``run_storm`` in a process that collects no garbage, and ends with it."""
    began_s = perf_counter()
    plan = planned(seed, options)
    if only is not None:
        plan = numbered(plan, only)
    storm: Storm | None = None
    failure: Exception | None = None
    with LogWatch() as watch:
        try:
            storm = Storm(seed, options, trace)
            storm.blow(plan)
            storm.run.converge()
            watch.check()
            if options.journal:
                check_journals(storm.run.cluster)
        except Exception as error:
            failure = error
    run = None if storm is None else storm.run
    scheduler = None if run is None else run.cluster.simulation.scheduler
    return Outcome(
        seed=seed,
        options=options,
        plan=tuple(plan),
        virtual_s=0.0 if scheduler is None else scheduler.now_s,
        wall_s=perf_counter() - began_s,
        events=0 if scheduler is None else scheduler.events_count,
        acknowledged=0 if run is None else run.history.acked_count,
        failure="" if failure is None else one_line(failure),
        cause=None if failure is None else cause_of(failure),
        details="" if failure is None else "".join(format_exception(failure)),
        story=() if run is None else tuple(run.story),
    )


def unfinished(seed: int, options: StormOptions, error: Exception) -> Outcome:
    """What is to be said of a storm whose process ended in the middle of it."""
    plan = tuple(planned(seed, options))
    return Outcome(seed, options, plan, 0.0, 0.0, 0, 0, one_line(error), cause_of(error), str(error), ())


def cause_of(error: Exception) -> Cause:
    """A check says that a rule does not hold; an error that a program raised may break none."""
    if isinstance(error, TimeoutError):
        return Cause.TIME
    if isinstance(error, AssertionError) and not isinstance(error, UnexpectedLog | ProgramFailed):
        return Cause.RULE
    return Cause.ERROR


def one_line(error: Exception) -> str:
    """What was wrong, for a list of many."""
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
