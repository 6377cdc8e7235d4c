"""Storms: clusters under load with several simultaneous faults of all kinds; all recover in the end."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from cluster_runs import seeds

from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.storms import storm as storms
from kreplica.testing.storms import sweep as sweeps
from kreplica.testing.storms.minimize import minimize
from kreplica.testing.storms.options import StormOptions, options_of
from kreplica.testing.storms.outcome import Outcome, run_storm
from kreplica.testing.storms.sweep import Tally, sweep

SEEDS = 200
SEEDS_PER_TEST = 20
SECONDS = 12
"""Virtual duration of each storm; storms of ``make soak`` take a minute each."""

JOBS = min(2, os.cpu_count() or 1)
SHORT = {"seconds": "10", "messages_per_s": "20"}


def check(outcome: Outcome) -> None:
    assert outcome.clean, f"kreplica simulate --seed {outcome.seed}\n{outcome.details}"


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.soak] if first > SEEDS_PER_TEST else [])
        for first in range(1, SEEDS + 1, SEEDS_PER_TEST)
    ],
)
def test_storms(first: int) -> None:
    """Acknowledged and read records exist once and in order; after the storm, all replicas are in sync.

    ``make test`` runs the first 20 seeds, ``make soak`` the others.
    """
    tally = Tally()
    for outcome in sweep(seeds(range(first, first + SEEDS_PER_TEST)), jobs=JOBS, chosen={"seconds": str(SECONDS)}):
        check(outcome)
        tally.add(outcome)
    assert tally.virtual_s >= SECONDS * tally.storms
    assert tally.acknowledged > 100 * tally.storms


@pytest.mark.parametrize("ensemble", [1, 3])
def test_storms_with_protected_znodes(ensemble: int) -> None:
    """With protected znodes, brokers authenticate on each connection and access no znode without permission."""
    chosen = {"seconds": str(SECONDS), "protected": "yes", "ensemble": str(ensemble)}
    for outcome in sweep(seeds(range(301, 305)), jobs=JOBS, chosen=chosen):
        check(outcome)


@pytest.mark.parametrize("ensemble", [1, 3])
def test_storms_with_changing_rights(ensemble: int) -> None:
    """No principal exceeds its rights while passwords, users, ACLs and quotas change."""
    chosen = {**SHORT, "seconds": "6", "security": "yes", "ensemble": str(ensemble)}
    for outcome in sweep(seeds(range(401, 403)), jobs=JOBS, chosen=chosen):
        check(outcome)


@pytest.mark.soak
def test_many_storms_with_changing_rights() -> None:
    """No principal exceeds its rights in a hundred 30-second storms."""
    for outcome in sweep(seeds(range(1, 101)), jobs=JOBS, chosen={"security": "yes", "seconds": "30"}):
        check(outcome)


def deterministic_part(outcome: Outcome) -> Outcome:
    """Return the parts of an outcome that depend only on the seed."""
    return replace(outcome, wall_s=0.0)


@pytest.mark.parametrize("chosen", [{}, {"security": "yes", "seconds": "5"}], ids=["plain", "security"])
def test_a_seed_determines_the_run(chosen: dict[str, str]) -> None:
    """Two storms with the same seed have equal events and records, in the same process or in different ones."""
    here = [deterministic_part(outcome) for outcome in sweep([3, 5], chosen={**SHORT, **chosen})]
    elsewhere = [deterministic_part(outcome) for outcome in sweep([3, 5], jobs=2, chosen={**SHORT, **chosen})]
    assert sorted(elsewhere, key=lambda outcome: outcome.seed) == here
    assert here[0].events != here[1].events


def test_a_trace_has_a_line_for_every_event() -> None:
    """The trace of a storm has a line for every event, and for every fault at the time of its injection."""
    lines: list[str] = []
    outcome = run_storm(4, options_of(4, SHORT), trace=lines.append)
    events = [line.partition(" * ")[2] for line in lines if " * " in line]
    assert events == [line[10:].strip() for line in outcome.timeline]
    assert len(lines) == outcome.events + len(events)
    times_s = [float(line.split()[0]) for line in lines]
    assert times_s == sorted(times_s)


def test_omitted_faults_do_not_happen() -> None:
    """If only some of a storm's faults are chosen, exactly these are injected, at the same times."""
    options = options_of(8, SHORT)
    whole = run_storm(8, options)
    numbers = [fault.number for fault in whole.plan[::2]]
    assert numbers
    part = run_storm(8, options, numbers)
    check(part)
    assert [fault for fault in whole.plan if fault.number in numbers] == list(part.plan)
    events = [line[11:].partition(": ") for line in part.timeline]
    started = [int(number) for number, _, what in events if number.isdigit() and not what.startswith("end of ")]
    assert started == numbers


def test_a_sweep_ends_at_its_time_limit() -> None:
    """A sweep without an end seed starts no storm after its time limit."""
    outcomes = list(sweep(iter(range(1, 10_000)), chosen={**SHORT, "seconds": "1"}, seconds_max=1.0))
    assert 1 <= len(outcomes) < 1000


def test_a_failure_is_reported_and_minimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a broker fails after a pause, the storm fails, and its minimized plan contains only the pause."""

    def burst(run: object, random: object) -> None:
        raise RuntimeError("failed after a pause")

    monkeypatch.setitem(storms.FAULTS, "pause", (burst, 1.0))
    options = StormOptions(seconds=20.0, messages_per_s=20, fault_interval_s=0.5)
    failed = next(
        outcome
        for outcome in (run_storm(seed, options) for seed in range(1, 10))
        if any(fault.name == "pause" for fault in outcome.plan)
    )
    assert failed.failure == "RuntimeError: failed after a pause"
    minimum = minimize(failed)
    assert [fault.name for fault in minimum.outcome.plan] == ["pause"]
    assert minimum.outcome.failure == failed.failure


def test_a_cluster_that_does_not_start_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that does not start is reported as a failed storm."""

    def burst(self: SimulatedCluster) -> None:
        raise RuntimeError("cluster does not start")

    monkeypatch.setattr(SimulatedCluster, "start", burst)
    outcome = run_storm(1, options_of(1, SHORT))
    assert outcome.failure == "RuntimeError: cluster does not start"
    assert outcome.timeline == ()


def test_a_process_that_dies_in_a_storm_fails_only_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the process of a storm dies, its seed is reported as failed, and the sweep continues."""
    monkeypatch.setattr(sweeps, "run_without_collection", lambda seed, options: os._exit(9))
    outcome = sweeps.run_in_child(7, SHORT)
    assert (outcome.seed, outcome.failure) == (7, "ChildFailed: the storm's process ended with status 9")
