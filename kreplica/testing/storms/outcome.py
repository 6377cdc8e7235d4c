"""Runs one storm, from its seed to its outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from traceback import format_exception

from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.cluster_run import ProgramFailed
from kreplica.testing.storms.journals import check_journals
from kreplica.testing.storms.log_watch import LogWatch, UnexpectedLog
from kreplica.testing.storms.options import StormOptions
from kreplica.testing.storms.plan import Fault, select_faults
from kreplica.testing.storms.storm import Storm, faults_of_seed


class Cause(Enum):
    RULE = "invariant violated"
    TIME = "timeout"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a storm; equal for the same seed, options and faults, except ``wall_s``.

    :param plan: the planned faults.
    :param virtual_s: virtual duration, including startup and recovery.
    :param wall_s: real duration.
    :param events: number of events.
    :param acknowledged: number of acknowledged records of the main topic.
    :param failure: the error in one line; empty if the storm passed.
    :param cause: None if the storm passed.
    :param details: traceback of the error.
    :param timeline: faults and operations, one line each.
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
    timeline: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return not self.failure


def run_storm(
    seed: int,
    options: StormOptions,
    fault_numbers: Collection[int] | None = None,
    trace: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one storm and return its outcome, even if it fails.

    :param fault_numbers: numbers of the faults to execute; None for all.
    :param trace: called with one line per event.
    """
    with deferred_collection():
        return run_without_collection(seed, options, fault_numbers, trace)


def run_without_collection(
    seed: int,
    options: StormOptions,
    fault_numbers: Collection[int] | None = None,
    trace: Callable[[str], None] | None = None,
) -> Outcome:
    """Run one storm in a process that exits afterwards, so that its garbage need not be collected."""
    started_s = perf_counter()
    plan = faults_of_seed(seed, options)
    if fault_numbers is not None:
        plan = select_faults(plan, fault_numbers)
    storm: Storm | None = None
    failure: Exception | None = None
    with LogWatch() as watch:
        try:
            storm = Storm(seed, options, trace)
            storm.execute(plan)
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
        wall_s=perf_counter() - started_s,
        events=0 if scheduler is None else scheduler.event_count,
        acknowledged=0 if run is None else run.history.acked_count,
        failure="" if failure is None else one_line(failure),
        cause=None if failure is None else cause_of(failure),
        details="" if failure is None else "".join(format_exception(failure)),
        timeline=() if run is None else tuple(run.timeline),
    )


def unfinished_outcome(seed: int, options: StormOptions, error: Exception) -> Outcome:
    """Return the outcome of a storm whose process ended before the storm."""
    plan = tuple(faults_of_seed(seed, options))
    return Outcome(seed, options, plan, 0.0, 0.0, 0, 0, one_line(error), cause_of(error), str(error), ())


def cause_of(error: Exception) -> Cause:
    if isinstance(error, TimeoutError):
        return Cause.TIME
    if isinstance(error, AssertionError) and not isinstance(error, UnexpectedLog | ProgramFailed):
        return Cause.RULE
    return Cause.ERROR


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
