"""Many seeds, in several processes, until all have run or the time is over."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from multiprocessing import get_context, parent_process
from threading import Thread
from time import monotonic

from twisted.logger import globalLogBeginner

from kreplica.testing.storms.child import ChildFailed, in_child
from kreplica.testing.storms.cleanup import only_between_storms
from kreplica.testing.storms.options import options_of
from kreplica.testing.storms.outcome import Outcome, run_storm, run_unburied, unfinished

WAITING_FOR_EACH_JOB = 2

FAILURES_MAX = 1000
"""Failed storms that are kept; their stories take space."""


@dataclass(slots=True)
class Tally:
    """What many storms came to.

    :ivar failures: those that failed, as they came.
    """

    storms: int = 0
    clean: int = 0
    virtual_s: float = 0.0
    busy_s: float = 0.0
    acknowledged: int = 0
    events: int = 0
    faults: int = 0
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one more."""
        self.storms += 1
        self.clean += outcome.clean
        self.virtual_s += outcome.virtual_s
        self.busy_s += outcome.wall_s
        self.acknowledged += outcome.acknowledged
        self.events += outcome.events
        self.faults += len(outcome.plan)
        if not outcome.clean and len(self.failures) < FAILURES_MAX:
            self.failures.append(outcome)


def sweep(
    seeds: Iterable[int],
    *,
    jobs: int = 1,
    chosen: Mapping[str, str] | None = None,
    seconds_max: float = float("inf"),
) -> Iterator[Outcome]:
    """Run one storm per seed; the outcomes come as they are ready.

    :param seeds: may be endless where ``seconds_max`` is not.
    :param jobs: processes at work at once; with 1 it is this one.
    :param chosen: options that are not left to the seeds.
    :param seconds_max: no storm begins later than this many seconds of real time from now.
    """
    deadline_s = monotonic() + seconds_max
    chosen = dict(chosen or {})
    if jobs == 1:
        for seed in seeds:
            if monotonic() >= deadline_s:
                return
            yield run_seed(seed, chosen)
    else:
        yield from _in_processes(iter(seeds), jobs, partial(run_in_child, chosen=chosen), deadline_s)


def run_seed(seed: int, chosen: Mapping[str, str]) -> Outcome:
    """One storm as its seed has it."""
    return run_storm(seed, options_of(seed, chosen))


def run_in_child(seed: int, chosen: Mapping[str, str]) -> Outcome:
    """The same in a process of its own; the end of that is a failure of its seed."""
    options = options_of(seed, chosen)
    try:
        return in_child(lambda: run_unburied(seed, options))
    except ChildFailed as error:
        return unfinished(seed, options, error)


def _in_processes(
    seeds: Iterator[int], jobs: int, run: Callable[[int], Outcome], deadline_s: float
) -> Iterator[Outcome]:
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_begin_process) as pool:
        waiting: set[Future[Outcome]] = set()
        while True:
            if monotonic() < deadline_s:
                wanted = jobs * WAITING_FOR_EACH_JOB - len(waiting)
                waiting |= {pool.submit(run, seed) for seed in islice(seeds, wanted)}
            if not waiting:
                return
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in done)


def _begin_process() -> None:
    keep_quiet()
    only_between_storms()
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Whoever is killed cannot tell its processes; they would wait for more to do for ever."""
    parent = parent_process()
    assert parent is not None, "a process of a sweep has one"
    parent.join()
    os._exit(1)


def keep_quiet() -> None:
    """Let this process log nothing: a storm logs thousands of lines, and keeps what matters of them itself."""
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
