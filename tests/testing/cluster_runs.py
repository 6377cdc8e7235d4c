"""Scripted runs of a replicated cluster, one per seed.

``KREPLICA_SEEDS=17,18 pytest tests/testing/test_cluster_failures.py`` runs these seeds instead of the defaults;
``KREPLICA_TRACE=FILE`` also writes every event to a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kreplica.testing.storms.replicated_run import ReplicatedRun

TRACE: list[str] | None = [] if os.environ.get("KREPLICA_TRACE") else None


def seeds(default: Iterable[int]) -> list[int]:
    """Return the seeds in the environment, or the defaults."""
    chosen = os.environ.get("KREPLICA_SEEDS")
    return [int(seed) for seed in chosen.split(",")] if chosen else list(default)


def traced_run(seed: int, **options: Any) -> ReplicatedRun:
    """Create a run that writes its events to the file named by the environment, if any."""
    return ReplicatedRun(seed, trace=TRACE.append if TRACE is not None else None, **options)


@contextmanager
def run_with_timeline(seed: int, make: Callable[[int], ReplicatedRun] = traced_run) -> Iterator[ReplicatedRun]:
    """Create a run; if the test fails, its error shows the seed and the event list."""
    if TRACE is not None:
        TRACE.clear()
    run = make(seed)
    try:
        yield run
    except BaseException as error:
        events = "\n".join(run.timeline)
        now_s = run.cluster.simulation.now_s
        error.add_note(
            f"seed {seed} failed at {now_s:.3f} s of virtual time; KREPLICA_SEEDS={seed} repeats it\n{events}"
        )
        raise
    finally:
        if TRACE is not None:
            Path(os.environ["KREPLICA_TRACE"]).write_text("\n".join(TRACE))
