"""Chooses the cases of a run, and runs them in parallel processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from kreplica.testing.designs.layout import Shape
from kreplica.testing.designs.measure import DESIGNS, Case, CaseResult, run_case

FULL_PARTITIONS_MAX = 1_000
CROSS_PARTITIONS_MAX = 10_000

SUBSET_RULE = (
    f"With up to {FULL_PARTITIONS_MAX:,} partitions, every combination is run.  With up to {CROSS_PARTITIONS_MAX:,}, "
    "every number of brokers is combined with the middle round trip, and every round trip with the first number of "
    "brokers.  With more, only the first number of brokers is combined with the middle round trip.  Unpipelined calls "
    f"are run with up to {CROSS_PARTITIONS_MAX:,} partitions, the first number of brokers and the last round trip."
)


def choose_cases(
    partitions: Sequence[int], brokers: Sequence[int], rtts_ms: Sequence[float], replication_factor: int, *, full: bool
) -> list[Case]:
    """Return the cases of a run; see ``SUBSET_RULE``.

    :param full: True for every combination at every size.
    """
    middle_ms = rtts_ms[len(rtts_ms) // 2]
    cases = []
    for count in partitions:
        for broker_count in brokers:
            for rtt_ms in rtts_ms:
                first, middle = broker_count == brokers[0], rtt_ms == middle_ms
                chosen = (
                    full
                    or count <= FULL_PARTITIONS_MAX
                    or (count <= CROSS_PARTITIONS_MAX and (first or middle))
                    or (first and middle)
                )
                shape = Shape(count, broker_count, min(replication_factor, broker_count))
                if chosen:
                    cases += [Case(design, shape, rtt_ms) for design in DESIGNS]
        if full or count <= CROSS_PARTITIONS_MAX:
            shape = Shape(count, brokers[0], min(replication_factor, brokers[0]))
            cases += [Case(design, shape, rtts_ms[-1], one_by_one=True) for design in DESIGNS]
    return cases


def run_cases(cases: Sequence[Case], jobs: int, finished: Callable[[CaseResult], None]) -> list[CaseResult]:
    """Run cases, the largest first, and return the results in the order of the cases.

    :param jobs: number of processes; 1 runs them in this process.
    :param finished: called after each case.
    """
    results: dict[Case, CaseResult] = {}
    for result in _run(sorted(cases, key=_weight, reverse=True), jobs):
        results[result.case] = result
        finished(result)
    return [results[case] for case in cases]


def _weight(case: Case) -> tuple[int, int]:
    return case.shape.partitions * {"race": 3, "leader": 2}.get(case.design, 1), case.shape.brokers


def _run(cases: Sequence[Case], jobs: int) -> Iterator[CaseResult]:
    if jobs == 1:
        yield from map(run_case, cases)
        return
    # A process per case: the memory of a large one is returned before the next starts.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
        for done in as_completed([pool.submit(run_case, case) for case in cases]):
            yield done.result()
