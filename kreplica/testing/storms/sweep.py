"""Runs storms of many seeds in several processes."""

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

from kreplica.testing.storms.child import ChildFailed, call_in_child
from kreplica.testing.storms.cleanup import disable_automatic_collection
from kreplica.testing.storms.options import options_of
from kreplica.testing.storms.outcome import Outcome, run_storm, run_without_collection, unfinished_outcome

QUEUED_PER_JOB = 2

FAILURES_MAX = 1000
"""Maximum number of failed outcomes that are kept; their timelines need memory."""


@dataclass(slots=True)
class Tally:
    """Totals of many storms.

    :ivar failures: outcomes of failed storms, in order of completion.
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
    """Run one storm per seed and yield the outcomes in order of completion.

    :param seeds: may be infinite if ``seconds_max`` is finite.
    :param jobs: number of parallel processes; 1 runs the storms in this process.
    :param chosen: options that override those drawn from the seeds.
    :param seconds_max: real time after which no further storm starts.
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
    return run_storm(seed, options_of(seed, chosen))


def run_in_child(seed: int, chosen: Mapping[str, str]) -> Outcome:
    """Run a storm in a forked process; if the process is killed, the storm has failed."""
    options = options_of(seed, chosen)
    try:
        return call_in_child(lambda: run_without_collection(seed, options))
    except ChildFailed as error:
        return unfinished_outcome(seed, options, error)


def _in_processes(
    seeds: Iterator[int], jobs: int, run: Callable[[int], Outcome], deadline_s: float
) -> Iterator[Outcome]:
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_initialize_process) as pool:
        pending: set[Future[Outcome]] = set()
        while True:
            if monotonic() < deadline_s:
                missing = jobs * QUEUED_PER_JOB - len(pending)
                pending |= {pool.submit(run, seed) for seed in islice(seeds, missing)}
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def _initialize_process() -> None:
    disable_logging()
    disable_automatic_collection()
    Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exit when the parent process has ended; otherwise workers of a killed parent would wait forever."""
    parent = parent_process()
    assert parent is not None, "a sweep's worker has a parent process"
    parent.join()
    os._exit(1)


def disable_logging() -> None:
    """Discard all log entries of this process; a storm logs thousands of lines, and ``LogWatch`` checks them."""
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
