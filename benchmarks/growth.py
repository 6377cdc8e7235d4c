"""CPU time per request and memory of a broker as the number of partitions, connections and groups grows.

Brokers with few and with many partitions (or connections, or groups) run at the same time and receive load in turn.
Values are medians; CPU time comes from the operating system's scheduler and includes all threads of a broker.  Requests
write or read one record of 1 KB, the cheapest case.  A client has 50 requests in flight.  In the table by connections,
each connection has one request in flight, and ten connections are used at a time.  Concurrent commits cost less if
there are few groups, because commits to the same partition of the offsets topic are written together.  The tables of
start times compare brokers with few and many partitions, and with little and much data, which restart after a clean
stop, or after a kill before any data was synced.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.broker_process import SCRATCH, allow_files
from benchmarks.growth_starts import Stopped
from benchmarks.growth_subjects import FEW, Amount, Connections, ConsumerGroups, Figures, Partitions, Subject

KINDS: Mapping[str, Callable[[Path, int, Amount], Subject]] = {
    "partitions": Partitions,
    "connections": Connections,
    "consumer groups": ConsumerGroups,
}


@dataclass(frozen=True)
class Scale:
    """Amount of work.

    :param counts: numbers of partitions, connections and groups to compare.
    :param starts: number of starts, by number of partitions.
    :param data_mb: amounts of data in ten partitions.
    :param data_starts: number of starts for each amount of data.
    """

    amount: Amount
    counts: Mapping[str, tuple[int, ...]]
    starts: Mapping[int, int]
    data_mb: tuple[int, ...]
    data_starts: int


SCALES = {
    "quick": Scale(
        Amount(requests=1_000, rounds=3, idle_s=1.0),
        {"partitions": (10, 100, 1_000), "connections": (10, 100, 1_000), "consumer groups": (1, 10, 100)},
        starts={10: 1, 100: 1, 1_000: 1},
        data_mb=(10, 100),
        data_starts=1,
    ),
    "full": Scale(
        Amount(requests=5_000, rounds=7, idle_s=5.0),
        {"partitions": (10, 1_000, 10_000), "connections": (10, 1_000, 10_000), "consumer groups": (1, 100, 1_000)},
        starts={10: 5, 1_000: 3, 10_000: 1},
        data_mb=(10, 100, 1_000, 4_000),
        data_starts=3,
    ),
}


def run(scale: str = "quick") -> list[dict[str, Any]]:
    """Measure brokers of all sizes.

    :return: rows by partitions, connections and consumer groups, and rows for the starts.
    """
    chosen = SCALES[scale]
    allow_files()
    SCRATCH.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, kind in KINDS.items():
        rows += _grown(name, kind, chosen)
    rows += [_started("partitions at the start", count, count, 0, starts) for count, starts in chosen.starts.items()]
    return rows + [_started("data MB at the start", size, FEW, size, chosen.data_starts) for size in chosen.data_mb]


def _grown(name: str, kind: Callable[[Path, int, Amount], Subject], scale: Scale) -> list[dict[str, Any]]:
    """Measure one broker of each size in turn; the first round is a warm-up."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(_scratch()))
        counts = scale.counts[name]
        subjects = {count: stack.enter_context(kind(directory / str(count), count, scale.amount)) for count in counts}
        samples: dict[int, list[Figures]] = {count: [] for count in counts}
        for number in range(scale.amount.rounds + 1):
            for count in counts if number % 2 else reversed(counts):
                _print_progress(f"{count} {name}, {f'round {number}' if number else 'warming up'}")
                sample = subjects[count].sample()
                if number:
                    samples[count].append(sample)
        return [{name: count, **_medians(samples[count]), **subjects[count].ended()} for count in counts]


def _started(name: str, count: int, partitions: int, data_mb: int, times: int) -> dict[str, Any]:
    _print_progress(f"starts with {partitions} partitions, {data_mb} MB")
    with _scratch() as directory:
        stopped = Stopped(Path(directory), partitions, data_mb)
        return {name: count, **_medians([stopped.sample() for _ in range(times)])}


def _print_progress(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def _scratch() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="growth-", dir=SCRATCH, ignore_cleanup_errors=True)


def _medians(samples: Sequence[Figures]) -> Figures:
    return {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}
